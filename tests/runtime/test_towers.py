"""Towers with class tokens, tables of positions, deep features and other projectors have the loss and gradients of one
process, however their images are cut.
"""

from dataclasses import replace

import pytest

from planner.specs.workload.items import ItemSize
from tests.runtime.multi_module_plans import TEXTS, joined, layout, require_those_of_one_process
from tests.runtime.training_worlds import ONCE, asked_for, run_all

pytestmark = pytest.mark.slow

ALL, LOW, HIGH = (0, 1, 2, 3), (0, 1), (2, 3)
PHOTOS = {0: 9, 1: 5, 2: ItemSize(patches=(9, 2, 4)), 3: 8}  # patches and a class token; of three images in one item
TILES = {0: 16, 1: 8, 2: ItemSize(patches=(16, 12)), 3: 4}
FEEDS = {0: 0, 1: 0, 2: 1, 3: (2, 3)}
LLM = layout("llm", pp=2, dp=2)
RING = {("clip", ALL): {"ring": 2, "ulysses": 2}, ("clip", LOW): {"ring": 2}}


def plan_of_tower(name, rows, items, splits=None, **said):
    items, tower = {"llm": TEXTS, name: items}, layout(name, **said)
    return joined({"llm": LLM, name: tower}, rows, items=items, feeds={name: FEEDS}, splits=splits)


def rows(name, *cells):
    texts = {(0, 2): (0,), (1, 3): (1,)}, {ALL: (2, 3)}
    return [{name: dict(cell), "llm": text} for cell, text in zip(cells, texts, strict=True)]


APART = {(0,): (0,), (1,): (1,), (3,): (2,)}, {(2,): (3,)}
CUT = {LOW: (0, 1), HIGH: (2,)}, {ALL: (3,)}
PLANS = {
    f"{name}, {how}": plan_of_tower(name, rows(name, *cells), items, **said)
    for name, items in (("clip", PHOTOS), ("tiles", TILES), ("linear", TILES))
    for how, cells, said in (
        ("dp", APART, {"dp": 4}),
        ("ulysses", CUT, {"dp": 4}),
        ("tp", ({LOW: (0, 1), HIGH: (2,)}, {LOW: (3,)}), {"tp": 2, "dp": 2}),
        ("stages", ({LOW: (0, 1), HIGH: (2,)}, {LOW: (3,)}), {"pp": 2, "dp": 2, "rank_order": "pp-dp"}),
    )
}
for how, cells, said in (
    ("dp", APART, {"dp": 4}),
    ("ulysses", CUT, {"dp": 4, "zero": 3}),
    ("tp", ({LOW: (0, 1), HIGH: (2,)}, {LOW: (3,)}), {"tp": 2, "dp": 2}),
):
    PLANS[f"deep, {how}"] = plan_of_tower("deep", rows("deep", *cells), TILES, **said)
PLANS["clip, a ring"] = plan_of_tower("clip", rows("clip", {LOW: (0, 1), HIGH: (2,)}, {ALL: (3,)}), PHOTOS, RING, dp=4)
PLANS["clip, zero 3"] = joined(
    {"llm": layout("llm", dp=4, zero=3), "clip": layout("clip", dp=4, zero=3)},
    [{"clip": dict(CUT[0]), "llm": {LOW: (0,), HIGH: (1,)}}, {"clip": {LOW: (3,)}, "llm": {ALL: (2, 3)}}],
    items={"llm": TEXTS, "clip": PHOTOS},
    feeds={"clip": FEEDS},
)


@pytest.fixture(scope="module")
def results(request):
    return run_all(4, {name: PLANS[name] for name in asked_for(request, "name")}, replace(ONCE, dtype="float64"))


@pytest.mark.every(10)
@pytest.mark.parametrize("name", PLANS)
def test_loss_and_gradients_are_those_of_one_process(results, name):
    require_those_of_one_process(PLANS[name], results[name].verify)
