"""Channels are made before the first step, for every step that may come."""

from typing import get_args

import pytest

from planner.launch.communication.channels import Carried
from planner.plan.plan_file import FollowingSteps
from planner.plan.tasks.expand import expand
from planner.runtime.exchange.edge_transfers import edge_transfers, plan_channels
from planner.specs.base import with_fields
from tests.runtime.training_worlds import DECODER, spread
from tests.several import legal

CARRIED = get_args(Carried)
CASES = {  # the rows of the head, those of a step that comes later, and how both are spread
    "stages": (
        [[(0, 2, 4, 6), (1, 3, 5, 7)]] * 4,
        [[(0, 6), (1, 3, 4, 5)], [(2, 4), (1, 7)]],
        {"pp": 2, "dp": 4},
    ),
    "chunks": ([[(0, 2, 4, 6)]] * 4, [[(1, 3, 5, 7)]] * 4, {"pp": 4, "dp": 2, "vpp": 2}),
}


def channels(plan):
    return plan_channels(plan, [expand(plan, number) for number in range(len(plan.steps))])


def plans(name):
    """The head of a run, with groups that its own step does without; and a step that comes later."""
    own, later, how = CASES[name]
    head, coming = (spread(8, with_fields(DECODER, layers=8), rows=rows, **how) for rows in (own, later))
    return with_fields(head, groups={**head.groups, **coming.groups}, then=FollowingSteps(folder="steps")), coming


@pytest.mark.parametrize("name", CASES)
def test_a_step_that_comes_later_finds_its_channels(name):
    head, coming = plans(name)
    assert channels(coming) <= channels(head)
    assert not channels(coming) <= channels(with_fields(head, then=None))


def test_nothing_is_connected_that_no_group_needs():
    head, coming = plans("chunks")
    assert channels(head) == channels(coming) | channels(with_fields(head, then=None))


def test_of_two_modules_any_step_finds_its_channels():
    for plan in legal(0, 20).values():
        head = with_fields(plan, steps=(), then=FollowingSteps(folder="steps"))
        assert channels(plan) <= channels(head)


def test_outputs_of_modules_have_channels_of_their_own():
    """Also between two ranks that send each other activations of stages."""
    both = 0
    for plan in legal(0, 20).values():
        kinds = {carries: {each[:2] for each in channels(plan) if each.carries == carries} for carries in CARRIED}
        crossing = edge_transfers(plan, expand(plan)).values()
        pairs = {each.pair(of) for transfers in crossing for each in transfers for of in "FB"}
        assert kinds["modules"] == {pair for pair in pairs if pair[0] != pair[1]}
        both += len(kinds["modules"] & kinds["stages"])
    assert both
