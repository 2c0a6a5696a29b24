"""Loaders that are measured: every stage, every item once, and what is wrong with a dataset is named."""

import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import Dataset

from planner.costs import fitted, item_seconds
from planner.errors import InputError
from planner.profiling import MeasuredLoader, loader_of_job, loader_of_object, measure_loader
from planner.profiling.loader_profile import spread_out
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.loader import LoaderFile, LoaderPool, LoaderShares, LoaderStage, LoaderTiming
from planner.workflows.toy_samples import toy_samples, write_samples

QUICK = 0.01  # of the usual seconds


class Squares(Dataset):
    """A dataset of two stages that cannot be pickled."""

    def __init__(self):
        self.stages = {"read": lambda item: torch.full((4,), item), "square": lambda value: value**2}

    def __len__(self):
        return 40


class Odd(Dataset):
    """A dataset without stages, of which an item raises."""

    def __len__(self):
        return 40

    def __getitem__(self, item):
        if item == 17:
            raise KeyError("no such file")
        return torch.tensor(item)


class Unsendable(Dataset):
    """A dataset whose items no process can hand to another."""

    collate_fn = staticmethod(lambda items: items)

    def __len__(self):
        return 4

    def __getitem__(self, item):
        return lambda: item


class Empty(Odd):
    """A dataset without items."""

    def __len__(self):
        return 0


def measured(kind):
    return measure_loader(loader_of_object(f"{__name__}:{kind}", 8), QUICK)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or __import__(__name__))


@pytest.mark.slow
def test_stages_and_workers_are_timed():
    found = measured("Squares")
    assert [stage.name for stage in found.stages][:3] == ["read", "square", "pack"]
    assert found.stages[0].bytes == 32 and found.source == "measured"
    assert {0, 1} <= {each.workers for each in found.timings} and found.settings.workers <= found.pools["cores"].units


def test_wrong_datasets_are_named():
    with pytest.raises(InputError, match="item 17 raises in the stage `item`: KeyError"):
        measured("Odd")
    with pytest.raises(InputError, match="cannot hand over"):
        measured("Unsendable")
    with pytest.raises(InputError, match="has no items"):
        measured("Empty")
    with pytest.raises(InputError, match="there is no dataset: ModuleNotFoundError"):
        loader_of_object("nowhere_at_all:Data", 8)


def test_a_part_of_the_numbers_stands_for_all():
    for count in (1, 2, 3, 10, 97):
        assert sorted(spread_out(count)) == [*range(count)]


JOB = """format: planner.job/1
name: folder
model: tiny-omni
cluster: cpu-4
workload: {lengths: LENGTHS, batch_rows: 4, module: llm}
strategy: modality_layout
"""


def test_the_loader_of_a_job_packs_what_the_modules_read(tmp_path: Path):
    made = toy_samples(12)
    write_samples(tmp_path / "data", made)
    (tmp_path / "job.yaml").write_text(JOB.replace("LENGTHS", "{from: samples, path: data}"))
    loader = loader_of_job(load_job(str(tmp_path / "job.yaml"), JobOptions()))
    assert loader.count == 12 and loader.batch == 4 and [*loader.stages] == ["read", "decode"]
    tokens, patches, windows = loader.pack([loader.item(number) for number in range(12)])
    assert tokens.tolist() == [word for each in made for word in each.words]
    assert patches.shape[1] == 48 and windows.shape[1:] == (5, 16)
    drawn = JOB.replace("LENGTHS", "{from: sample_mix, text: 8, images: {name: coco}}")
    (tmp_path / "drawn.yaml").write_text(drawn)
    with pytest.raises(InputError, match="in no folder"):
        loader_of_job(load_job(str(tmp_path / "drawn.yaml"), JobOptions()))


def test_a_fit_goes_through_its_points_where_there_are_two():
    slope, constant = fitted([(1, 3.0), (2, 2.0)])
    assert (slope, constant) == (2.0, 1.0)
    assert fitted([(1, 1.0), (2, 1.5)]) == (0.0, 1.25)  # more workers are slower: none of it is shared
    assert fitted([(2, 1.0)]) == (2.0, 0.0)
    stages = (LoaderStage(name="read", pool="cores", seconds=4.0),)
    timings = tuple(LoaderTiming(workers=count, seconds=each) for count, each in ((0, 5.0), (1, 3.0), (2, 2.0)))
    loader = LoaderFile(
        format=LoaderFile.FORMAT, name="a", source="measured", pools={"cores": LoaderPool(units=8)}, stages=stages
    )
    assert item_seconds(loader, 4) == 1.0 and item_seconds(loader, 99) == 0.5
    link = LoaderStage(name="copy", pool="link", seconds=6.0)
    linked = with_fields(
        loader,
        pools={"cores": LoaderPool(units=8), "link": LoaderPool(units=4)},
        stages=(*stages, LoaderStage(name="pack", pool="cores", seconds=4.0), link),
    )
    assert item_seconds(linked, 2) == 6.0  # nothing says how much of the link it has
    shared = with_fields(linked, shares=LoaderShares(units={"copy": 4}, seconds=1.0, slowest="a", equal_seconds=1.0))
    assert [item_seconds(shared, count) for count in (1, 2, 8)] == [8.0, 4.0, 1.5]
    timed = LoaderFile(
        format=LoaderFile.FORMAT,
        name="a",
        source="measured",
        pools={"cores": LoaderPool(units=8)},
        stages=stages,
        timings=timings,
    )
    assert [item_seconds(timed, count) for count in (0, 1, 2, 4, 8)] == [5.0, 3.0, 2.0, 1.5, 1.25]


def test_items_keep_their_own_errors():
    def refuse(item):
        raise InputError("no", where="there")

    loader = MeasuredLoader("a", 3, {"read": refuse}, list)
    with pytest.raises(InputError, match="no") as refused:
        loader.item(1)
    assert refused.value.where == "there"


class Stages(Dataset):
    """A dataset with stages that are none."""

    stages = ("read", "square")

    def __len__(self):
        return 4


class Numbered(Stages):
    stages = {1: len}


class Leaves(Stages):
    """A dataset whose items end the process."""

    stages = {"read": lambda item: sys.exit(3)}


class Ragged(Stages):
    stages = {"read": lambda item: torch.ones(item + 1)}


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("Stages", "no functions by name"),
        ("Numbered", "no functions by name"),
        ("Leaves", "item 0 raises in the stage `read`: SystemExit"),
        ("Ragged", "4 items make no batch"),
    ],
)
def test_a_dataset_that_cannot_be_measured_is_refused(kind, says):
    with pytest.raises(InputError, match=says):
        measure_loader(loader_of_object(f"{__name__}:{kind}", 8), QUICK)
