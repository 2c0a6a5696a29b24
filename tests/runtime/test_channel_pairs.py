"""Channels are made before the first step, for every step that may come."""

import pytest

from planner.plan.plan_file import FollowingSteps
from planner.runtime.exchange.channel_pairs import channel_pairs
from planner.specs.base import with_fields
from tests.runtime.training_worlds import DECODER, spread
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
    head, coming = (spread(8, with_fields(DECODER, layers=8), rows=rows, **how) for rows in (own, later))
    return with_fields(head, groups={**head.groups, **coming.groups}, then=FollowingSteps(folder="steps")), coming


@pytest.mark.parametrize("name", CASES)
def test_a_step_that_comes_later_finds_its_channels(name):
    head, coming = plans(name)
    assert channel_pairs(coming) <= channel_pairs(head)
    assert not channel_pairs(coming) <= channel_pairs(with_fields(head, then=None))


def test_nothing_is_connected_that_no_group_needs():
    head, coming = plans("chunks")
    assert channel_pairs(head) == channel_pairs(coming) | channel_pairs(with_fields(head, then=None))


def test_of_two_modules_any_step_finds_its_channels():
    for plan in legal(0, 20).values():
        head = with_fields(plan, steps=(), then=FollowingSteps(folder="steps"))
        assert channel_pairs(plan) <= channel_pairs(head)
