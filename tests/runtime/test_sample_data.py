"""A run on images and sound from a folder gives loss and gradients of one process, and other folders are refused."""

from dataclasses import replace

import numpy as np
import pytest

from planner.errors import InputError
from planner.runtime import RunOptions
from planner.runtime.checkpoint.checkpoint_index import data_digest
from planner.runtime.preflight.data_checks import require_data
from planner.runtime.preflight.preflight_checks import require_runnable
from planner.specs.base import with_fields
from planner.specs.workload.items import item_tokens
from tests.examples import soaked
from tests.runtime.multi_module_plans import SPECS, joined, layout, require_those_of_one_process
from tests.runtime.training_worlds import ONCE, asked_for, train_all
from tests.sample_folders import SAMPLES, facts, planned, write_folder

ALL, LOW, HIGH = (0, 1, 2, 3), (0, 1), (2, 3)
PICTURES = {"photo": {"channels": 3}, "tiled": {"channels": 1}, "gridded": {"channels": 3}}
WHOLE = [
    {
        "photo": {(0,): (0,), (1,): (1,), (2,): (2, 3), (3,): (4,)},
        "talk": {(0,): (0,), (3,): (1, 2)},
        "llm": {(0,): (0, 5), (1,): (1, 3), (2,): (2,), (3,): (4,)},
    }
]
SHARDS = [
    {"photo": {LOW: (0, 2), HIGH: (1,)}, "talk": {ALL: (0, 1)}, "llm": {LOW: (0, 1), HIGH: (2, 4)}},
    {"photo": {ALL: (3, 4)}, "talk": {(1,): (2,)}, "llm": {ALL: (3, 5)}},
]
STAGES = [
    {"photo": {LOW: (0, 1), HIGH: (2, 4)}, "talk": {(3,): (1, 2)}, "llm": {(0, 2): (0, 4), (1, 3): (1, 5)}},
    {"photo": {HIGH: (3,)}, "talk": {(2,): (0,)}, "llm": {ALL: (2, 3)}},
]


def tiled(rows, tower="tiled"):
    return [{tower if name == "photo" else name: cells for name, cells in row.items()} for row in rows]


def dp4(*names, **said):
    return {name: layout(name, dp=4, **said) for name in (*names, "talk", "llm")}


PLANS = {  # layouts, rows, splits
    "whole images": (dp4("photo"), WHOLE, {}),
    "tiles": (dp4("tiled"), tiled(WHOLE), {}),
    "shards by heads": (dp4("photo"), SHARDS, {}),
    "shards of tiles": (dp4("tiled", zero=3), tiled(SHARDS), {}),
    "whole grids": (dp4("gridded"), tiled(WHOLE, "gridded"), {}),
    "shards of grids": (dp4("gridded"), tiled(SHARDS, "gridded"), {}),
    "rings of grids": (dp4("gridded", zero=2), tiled(SHARDS, "gridded"), {("gridded", ALL): {"ring": 4}}),
    "rings": (
        dp4("tiled"),
        tiled(SHARDS),
        {("llm", LOW): {"ring": 2}, ("llm", ALL): {"ulysses": 2, "ring": 2}, ("tiled", LOW): {"ring": 2},
         ("tiled", ALL): {"ring": 4}, ("talk", ALL): {"ring": 4}},
    ),
    "tensors": (
        {"photo": layout("photo", dp=2, tp=2), "talk": layout("talk", tp=4), "llm": layout("llm", dp=2, tp=2)},
        [{"photo": {LOW: (0, 2), HIGH: (1, 3, 4)}, "talk": {ALL: (0, 1, 2)}, "llm": {LOW: (0, 1, 2), HIGH: (3, 4, 5)}}],
        {},
    ),
    "stages": (
        {"photo": layout("photo", dp=2, pp=2, rank_order="pp-dp"), "talk": layout("talk", HIGH, dp=2, zero=2),
         "llm": layout("llm", pp=2, dp=2)},
        STAGES,
        {},
    ),
}  # fmt: skip


OFTEN = (  # two of each tower; the others in the soak
    "whole images", "stages", "shards of tiles", "rings", "whole grids", "rings of grids",
)  # fmt: skip


def plan_of(folder, name):
    """A plan of PLANS with the items of a folder."""
    layouts, rows, splits = PLANS[name]
    return joined(layouts, rows, splits=splits, **facts(planned(folder, {name: SPECS[name] for name in layouts})))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("samples")
    return {name: write_folder(base / name, **said) for name, said in PICTURES.items()}


def runs(folders, names):
    """Each of these plans with the folder that its model reads."""
    for name in names:
        layouts, _, _ = PLANS[name]
        folder = next(folders[tower] for tower in PICTURES if tower in layouts)
        yield name, (plan_of(folder, name), replace(ONCE, data=folder))


@pytest.fixture(scope="module")
def results(request, folders):
    found = dict(runs(folders, asked_for(request, "name") or OFTEN))
    for plan, options in found.values():
        require_runnable(plan, options)
    return found, train_all(4, found)


@pytest.mark.slow
@pytest.mark.parametrize("name", soaked(PLANS, OFTEN))
def test_loss_and_gradients_are_those_of_one_process(results, name):
    plans, found = results
    require_those_of_one_process(plans[name][0], found[name].verify)


@pytest.mark.slow
def test_the_loss_does_not_depend_on_the_plan(results):
    """It is that of the folder: of all plans with one tower, whatever ranks cut its images."""
    plans, found = results
    for tower in PICTURES:
        losses = [found[name].steps[0].loss for name, (plan, _) in plans.items() if tower in plan.layouts]
        assert len(losses) >= 2 and losses == pytest.approx([losses[0]] * len(losses), rel=1e-12)


@pytest.mark.slow
def test_the_loss_is_that_of_the_folders_images(folders, results, tmp_path):
    """Other pixels, other frames or other text give another loss; the same folder elsewhere the same."""
    plan, own = plan_of(folders["photo"], "whole images"), results[1]["whole images"].steps[0].loss
    same, other = write_folder(tmp_path / "same"), write_folder(tmp_path / "other", seed=1)
    options = {"same": same}
    for values in ("pixels", "frames", "tokens"):
        options[values] = write_folder(tmp_path / values)
        (options[values] / f"{values}.npy").write_bytes((other / f"{values}.npy").read_bytes())
    asked = {name: (plan, RunOptions(steps=1, seed=5, data=data)) for name, data in options.items()}
    losses = {name: each.steps[0].loss for name, each in train_all(4, asked).items()}
    assert losses["same"] == own
    assert len({round(loss, 9) for loss in losses.values()}) == 4


# ------------------------------------------------------------------------------------------------- refused before a run


def refused(plan, folder):
    with pytest.raises(InputError) as error:
        require_runnable(plan, RunOptions(data=folder))
    assert error.value.fix
    return error.value


@pytest.fixture
def plan(folders):
    return plan_of(folders["photo"], "whole images")


def changed(plan, module, item, size):
    items = {**plan.uses.items, module: {**plan.uses.items[module], item: size}}
    return with_fields(plan, uses=with_fields(plan.uses, items=items))


def test_items_of_another_plan_are_named(plan, folders):
    folder = folders["photo"]
    require_runnable(plan, RunOptions(data=folder))
    images, texts = plan.uses.items["photo"], plan.uses.items["llm"]
    for module, item, size, says in (
        ("photo", 1, images[1] + 4, rf"image 1 of sample 0 is {images[1]} tokens of `photo`, .* has {images[1] + 4}"),
        ("photo", 9, 16, "item 9 of `photo` is none of the plan's samples"),
        ("talk", 2, 10, "clip 2 of sample 4 is .* tokens of `talk`"),
        ("llm", 2, texts[2] + 1, f"sample 2 has {texts[2]} tokens with its images and sound, .* has {texts[2] + 1}"),
    ):
        with pytest.raises(InputError, match=says) as error:
            require_runnable(changed(plan, module, item, size), RunOptions(data=folder))
        assert error.value.where == str(folder) and "from: samples" in error.value.fix
    feeds = {**plan.uses.feeds, "photo": {**plan.uses.feeds["photo"], 2: 5}}
    crossed = with_fields(plan, uses=with_fields(plan.uses, feeds=feeds))
    with pytest.raises(InputError, match="image 2 of sample 1 stands in it, and the plan's item 2 of `photo` feeds 5"):
        require_data(crossed, RunOptions(data=folder))


def test_images_that_are_turned_are_named(folders):
    plan, folder = plan_of(folders["gridded"], "whole grids"), folders["gridded"]
    sizes = plan.uses.items["gridded"]
    item = next(item for item, size in sizes.items() if size.grids[0][0] != size.grids[0][1])
    ((rows, columns),) = sizes[item].grids
    require_runnable(plan, RunOptions(data=folder))
    turned = with_fields(sizes[item], grids=((columns, rows),))
    says = f"is {rows} x {columns} patches of `gridded`, and the plan's item {item} has {columns} x {rows}"
    assert says in refused(changed(plan, "gridded", item, turned), folder).message


def test_rounded_samples_are_the_folders(folders):
    """Lengths that a job rounds up are filled up behind the text, without targets."""
    layouts, rows, _ = PLANS["whole images"]
    batch = planned(folders["photo"], {name: SPECS[name] for name in layouts}, round_to=8)
    assert all(tokens % 8 == 0 for tokens in batch.items.values())
    plan = joined(layouts, rows, **facts(batch))
    require_runnable(plan, RunOptions(data=folders["photo"]))
    assert "sample 2 has 9 tokens" in refused(changed(plan, "llm", 2, 24), folders["photo"]).message


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        (SAMPLES[:5], "there is no sample 5: the folder has 5"),
        ((*SAMPLES[:3], (3, [(7, 11), (9, 9)], [27]), *SAMPLES[4:]), "image 4 of sample 3 is"),
        ((*SAMPLES[:5], (5, [], [])), "item 4 of `photo` is none of the plan's samples"),
        ((*SAMPLES[:5], (2, [(20, 12)], [])), "sample 5 has"),
    ],
)
def test_folders_of_other_samples_are_refused(plan, tmp_path, samples, says):
    assert says in refused(plan, write_folder(tmp_path / "data", samples)).message


def test_a_folder_without_images_or_sound_is_refused(plan, tmp_path):
    tokens = write_folder(tmp_path / "tokens", [(tokens, [], []) for tokens in plan.uses.items["llm"].values()])
    assert "item 0 is of patches, and the folder has tokens alone" in refused(plan, tokens).message
    silent = write_folder(tmp_path / "silent", [(text, images, []) for text, images, _ in SAMPLES])
    assert "item 0 of `talk` is none of the plan's samples" in refused(plan, silent).message


def test_an_image_for_a_text_model_is_refused(plan, folders):
    text = joined(
        {"llm": layout("llm", dp=4)},
        [{"llm": {(0,): (0, 1, 2, 3, 4, 5)}}],
        items={"llm": plan.uses.items["llm"]},
        feeds={},
    )
    error = refused(text, folders["photo"])
    assert "no module of toy reads one" in error.message and "leave images out" in error.fix


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"channels": 1}, "pixels have 1 channels, `photo` reads 3"),
        ({"mels": 5}, "frames have 5 mel bins, `talk` reads 4"),
    ],
)
def test_channels_and_mel_bins_are_the_models(plan, tmp_path, said, says):
    assert says in refused(plan, write_folder(tmp_path / "data", **said)).message


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_numbers_that_are_not_finite_are_named(plan, tmp_path, value):
    folder = write_folder(tmp_path / "data")
    pixels = np.load(folder / "pixels.npy").astype("float64")
    pixels[0] = value  # of no image
    np.save(folder / "pixels.npy", pixels)
    require_runnable(plan, RunOptions(data=folder))
    pixels[1 + 13 * 9 + 31, 2] = value  # row 1, column 1 of an image that is 30 wide
    np.save(folder / "pixels.npy", pixels)
    error = refused(plan, folder)
    assert error.message.startswith("image 1 has ") and error.message.endswith(" at [1, 1, 2]")
    assert error.where == str(folder / "pixels.npy")


def test_a_word_outside_the_vocabulary_is_named(plan, tmp_path):
    folder = write_folder(tmp_path / "data")
    tokens = np.load(folder / "tokens.npy")
    tokens[6] = 99
    np.save(folder / "tokens.npy", tokens)
    assert "token 1 of sample 2 is 99" in refused(plan, folder).message


def test_a_resumed_run_knows_its_images(folders, tmp_path):
    """The digest of the data: any change of an index, and of the first and last values, tells a folder from another."""
    digests = {
        data_digest(RunOptions(data=folders["photo"])),
        data_digest(RunOptions(data=write_folder(tmp_path / "same"))),
    }
    assert len(digests) == 1
    for name in ("images", "pixels", "clips", "frames"):
        folder = write_folder(tmp_path / name)
        array = np.load(folder / f"{name}.npy")
        array[-1, -1] += 1
        np.save(folder / f"{name}.npy", array)
        digests.add(data_digest(RunOptions(data=folder)))
    assert len(digests) == 5


def test_shards_do_cut_images(folders):
    """What the plans above are for: items with several parts, and ranks whose shards begin within an image."""
    plan = plan_of(folders["tiled"], "rings")
    sizes = plan.uses.items["tiled"]
    assert any(not isinstance(size, int) for size in sizes.values())
    shared = sum(item_tokens(sizes[item]) for item in (3, 4))
    assert shared // 4 < item_tokens(sizes[3])
