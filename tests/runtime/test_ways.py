"""Channels are made before the first step, for every step that may come."""

import pytest

from planner.plan.model import Then
from planner.runtime.ways import pairs
from planner.specs.base import changed
from tests.runtime.worlds import DECODER, spread
from tests.several import legal

CASES = {  # the rows of the head, those of a step that comes later, and how both are spread
    "stages": (
        [[(0, 2, 4, 6), (1, 3, 5, 7)]] * 4,
        [[(0, 6), (1, 3, 4, 5)], [(2, 4), (1, 7)]],
        {"pp": 2, "dp": 4},
    ),
    "chunks": ([[(0, 2, 4, 6)]] * 4, [[(1, 3, 5, 7)]] * 4, {"pp": 4, "dp": 2, "vpp": 2}),
}


def plans(name):
    """The head of a run, with groups that its own step does without; and a step that comes later."""
    own, later, how = CASES[name]
    head, coming = (spread(8, changed(DECODER, layers=8), rows=rows, **how) for rows in (own, later))
    return changed(head, groups={**head.groups, **coming.groups}, then=Then(folder="steps")), coming


@pytest.mark.parametrize("name", CASES)
def test_a_step_that_comes_later_finds_its_channels(name):
    head, coming = plans(name)
    assert pairs(coming) <= pairs(head)
    assert not pairs(coming) <= pairs(changed(head, then=None))


def test_nothing_is_connected_that_no_group_needs():
    head, coming = plans("chunks")
    assert pairs(head) == pairs(coming) | pairs(changed(head, then=None))


def test_of_two_modules_any_step_finds_its_channels():
    for plan in legal(0, 20).values():
        head = changed(plan, steps=(), then=Then(folder="steps"))
        assert pairs(plan) <= pairs(head)
