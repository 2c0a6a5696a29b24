"""`planner loader`, `loader-order` and `profile --loader` as they are typed: answers, files, errors."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from planner import files
from planner.specs.loader import LoaderFile
from planner.workflows.toy_samples import toy_samples, write_samples
from tests.typed import typed

EXAMPLE = Path(__file__).parents[2] / "docs/examples/loaders/stages.yaml"


@pytest.fixture
def folder(tmp_path):
    shutil.copy(EXAMPLE, tmp_path / "stages.yaml")
    ring = [(node, (node + step) % 40) for node in range(40) for step in (1, 2)]
    (tmp_path / "edges.csv").write_text("u,v\n" + "".join(f"{u},{v}\n" for u, v in ring))
    (tmp_path / "train.csv").write_text("".join(f"{node}\n" for node in range(0, 40, 2)))
    return tmp_path


def test_shares_are_printed_and_kept(folder):
    answer = json.loads(typed("planner loader stages.yaml -o divided.yaml --json", folder).out)
    kept = files.read(folder / "divided.yaml", LoaderFile)
    assert answer["shares"]["units"] == kept.shares.units and answer["loader_bound"] is True
    assert answer["one_more"]["worker"] < answer["seconds"] == kept.shares.seconds
    shown = typed("planner loader stages.yaml", folder).out
    assert "loader-bound: cache is the slowest stage" in shown and "one more of store: no quicker" in shown
    page = (EXAMPLE.parents[2] / "loaders.md").read_text()
    table = [line.rstrip() for line in shown.splitlines()[1:9]]
    assert all(line in page for line in table)


def test_an_order_is_chosen_and_written(folder):
    printed = typed("planner loader-order edges.csv --train-nodes train.csv --batch 5 --parts 2 --json", folder)
    assert printed.code == 0, printed.errors
    answer = json.loads(printed.out)
    with np.load(folder / "order.npz", allow_pickle=False) as found:
        assert sorted(found["order"]) == [*range(0, 40, 2)] and {*found["part"]} == {0, 1}
        assert len(found["part"]) == 40 and (len(found["cached"]) == 4 or answer["cache"] in ("fifo", "lru"))
    again = typed("planner loader-order edges.csv --train-nodes train.csv --batch 5 --parts 2 -o b.npz --json", folder)
    assert {**json.loads(again.out), "file": 0} == {**answer, "file": 0}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("loader nothing.yaml", "cannot read"),
        ("loader-order edges.csv --train-nodes train.csv --neighbours 10-x", "no neighbours by layer"),
        ("loader-order edges.csv --train-nodes train.csv -o order.csv", "is no .npz"),
        ("loader-order edges.csv --train-nodes edges.csv", "is not a node number"),
        ("loader-order edges.csv --train-nodes train.csv --parts 41", "fewer than 41 parts"),
        ("loader-order names.csv --train-nodes train.csv", "the graph has no edges"),
        ("loader-order gaps.csv --train-nodes train.csv", "900,000,001 nodes are numbered"),
        ("loader-order edges.csv --train-nodes negative.csv", "is not a node number"),
        ("profile gpt-7b --loader stages.yaml", "measured alone"),
        ("profile --quick --loader stages.yaml", "measured alone"),
        ("profile --loader nowhere:data", "there is no dataset"),
    ],
)
def test_what_is_wrong_is_said(folder, command, says):
    (folder / "names.csv").write_text("u,v\n")
    (folder / "gaps.csv").write_text("0,900000000\n")
    (folder / "negative.csv").write_text("-5\n")
    printed = typed(f"planner {command}", folder)
    assert printed.code == 2 and says in printed.errors


def test_a_cache_of_all_rows_and_parts_of_one_node_are_answered(folder):
    """METIS writes to standard output where parts are so small: the answer is alone there."""
    command = "planner loader-order edges.csv --train-nodes train.csv --batch 5 --parts 40 --cache 1"
    assert "0 rows in random order" in typed(command, folder).out
    assert json.loads(typed(f"{command} --json", folder).out)["rows"] == 0


JOB = """format: planner.job/1
name: toys
model: tiny-omni
cluster: cpu-4
workload: {lengths: {from: samples, path: data}, batch_rows: 8, module: llm}
strategy: modality_layout
"""


@pytest.mark.slow
def test_a_loader_is_measured_into_a_file(folder, monkeypatch):
    monkeypatch.setattr("planner.profiling.loader_profile.LOADER_S", 0.05)
    write_samples(folder / "data", toy_samples(32))
    (folder / "job.yaml").write_text(JOB)
    printed = typed("planner profile --loader job.yaml -o loader.yaml", folder)
    assert printed.code == 0, printed.errors
    found = files.read(folder / "loader.yaml", LoaderFile)
    assert [stage.name for stage in found.stages][:3] == ["read", "decode", "pack"] and found.items == 32
    assert typed("planner loader loader.yaml", folder).code == 0
