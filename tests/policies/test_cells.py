"""Cells: kinds and counts that are decided together."""

from random import Random

import pytest

from planner.policies import schedule_jobs
from planner.policies.orders import ORDERS
from planner.specs.base import with_fields
from planner.specs.cluster_jobs.actions_file import PolicyChoice
from tests.cluster_jobs import fleet_of, job, random_jobs
from tests.examples import share


@pytest.mark.parametrize("order", ORDERS)
def test_on_one_kind_with_one_count_cells_are_the_plain_order(order):
    fleet, plain = fleet_of(a=6), PolicyChoice(order=order, restart_s=5.0)
    for seed in range(share(40)):
        jobs = [
            with_fields(each, seconds={"a": {each.gpus: each.seconds["a"][each.gpus]}})
            for each in random_jobs(seed, fleet)
        ]
        choices = with_fields(plain, place="cells"), with_fields(plain, preempt=True)
        cells, preempting = (schedule_jobs(jobs, fleet, choice).history for choice in choices)
        assert cells.ends == preempting.ends


def test_more_counts_never_hurt_who_is_alone():
    """A job alone gets the count and kind with which it ends first."""
    for seed in range(share(40)):
        draw = Random(seed)
        alone = job("alone", 0, 1, a=draw.uniform(50, 100), b=draw.uniform(50, 100))
        for by_count in alone.seconds.values():
            by_count.update({count: draw.uniform(10, 200) for count in (2, 4)})
        end = schedule_jobs([alone], fleet_of(a=4), PolicyChoice(place="cells")).history.ends["alone"]
        assert end == min(alone.seconds["a"].values())


def test_a_job_shrinks_for_one_that_comes_and_grows_again():
    """Two GPUs at twice the speed: from 10 s on each has one, at a restart of 1 s; at 31 s the first has both again."""
    first, second = job("first", 0, 1, a=100.0), job("second", 10, 1, a=20.0)
    first.seconds["a"][2] = 50.0
    history = schedule_jobs([first, second], fleet_of(a=2), PolicyChoice(place="cells", restart_s=1.0)).history
    counts = [(each.job, len(each.gpus), each.since) for each in history.segments if each.job == "first"]
    assert counts == [("first", 2, 0), ("first", 1, 10), ("first", 2, 30)]
    assert history.ends == pytest.approx({"second": 30, "first": 31 + (1 - 10 / 50 - 19 / 100) * 50})
