"""Towers with windows of images, and decoders that count images in rows and columns, have the loss and gradients of one
process, however images and text are cut.
"""

from dataclasses import replace

import pytest

from planner.plan.tokens.encoder_outputs import token_grids
from planner.specs.workload.items import ItemSize, TokenGrid
from tests.runtime.multi_module_plans import joined, layout, require_those_of_one_process
from tests.runtime.training_worlds import ONCE, asked_for, run_all

ALL, LOW, HIGH = (0, 1, 2, 3), (0, 1), (2, 3)
IMAGES = {
    0: ItemSize(patches=60, grids=((6, 10),)),
    1: ItemSize(patches=(16, 24), grids=((4, 4), (12, 2))),
    2: 40,  # 4 x 10
    3: ItemSize(patches=(8,), grids=((2, 4),)),
}
TEXTS = {0: 31, 1: 17, 2: 13, 3: 30}
FEEDS = {0: 0, 1: 0, 2: 1, 3: (2, 3)}
RING = {("squares", ALL): {"ring": 2, "ulysses": 2}, ("squares", LOW): {"ring": 2}}
CUT = {LOW: (0, 1), HIGH: (2,)}, {ALL: (3,)}
PAIRS = {LOW: (0, 1), HIGH: (2,)}, {LOW: (3,)}
APART = {(0,): (0,), (1,): (1,), (3,): (2,)}, {(2,): (3,)}


def plan_of(towers, texts, tower, reader, splits=None):
    rows = [{"squares": seen, "sections": read} for seen, read in zip(towers, texts, strict=True)]
    layouts = {"squares": layout("squares", **tower), "sections": layout("sections", **reader)}
    items = {"squares": IMAGES, "sections": TEXTS}
    return joined(layouts, rows, items=items, feeds={"squares>sections": FEEDS}, splits=splits)


STAGED = ({(0, 2): (0,), (1, 3): (1,)}, {ALL: (2, 3)}), {"pp": 2, "dp": 2}
WHOLE = ({LOW: (0,), HIGH: (1,)}, {ALL: (2, 3)}), {"dp": 4}
PLANS = {
    f"{how}, {whose}": plan_of(cells, texts, said, reader)
    for how, cells, said in (
        ("dp", APART, {"dp": 4}),
        ("ulysses", CUT, {"dp": 4}),
        ("tp", PAIRS, {"tp": 2, "dp": 2}),
        ("stages", PAIRS, {"pp": 2, "dp": 2, "rank_order": "pp-dp"}),
    )
    for whose, (texts, reader) in (("stages", STAGED), ("ulysses", WHOLE))
}
PLANS["tp, tp"] = plan_of(PAIRS, ({LOW: (0,), HIGH: (1,)}, {LOW: (2, 3)}), *2 * ({"tp": 2, "dp": 2},))
PLANS["a ring"] = plan_of(CUT, WHOLE[0], {"dp": 4}, {"dp": 4}, RING)
PLANS["zero 3"] = plan_of(CUT, WHOLE[0], *2 * ({"dp": 4, "zero": 3},))


@pytest.fixture(scope="module")
def results(request):
    return run_all(
        4,
        {name: PLANS[name] for name in asked_for(request, "name") or [*PLANS][::5]},
        replace(ONCE, dtype="float64"),
    )


@pytest.mark.slow
@pytest.mark.every(8)
@pytest.mark.parametrize("name", PLANS)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    require_those_of_one_process(PLANS[name], results[name].verify)


@pytest.mark.slow
def test_every_plan_has_the_same_loss(results):
    losses = [result.steps[0].loss for result in results.values()]
    assert max(losses) - min(losses) <= 1e-12 * max(losses)


def test_grids_of_outputs_stand_among_the_text_that_reads_them():
    grids = token_grids(PLANS["dp, stages"], "sections")
    assert grids == {
        0: (TokenGrid(0, 3, 5), TokenGrid(15, 2, 2), TokenGrid(19, 6, 1)),
        1: (TokenGrid(0, 2, 5),),
        2: (TokenGrid(0, 1, 2),),
        3: (TokenGrid(0, 1, 2),),
    }
    assert token_grids(PLANS["dp, stages"], "squares")[1] == (TokenGrid(0, 4, 4), TokenGrid(16, 12, 2))
