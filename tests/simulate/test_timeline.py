"""Breakdowns: parts that add up, overlap that hides communication, and the same for measured timelines."""

import pytest
from hypothesis import given

from planner.costs.cost_lines import Cost
from planner.plan.mesh.identical_groups import representative_ranks
from planner.simulate import TaskEvent, Timeline, simulate
from planner.simulate.timeline import busy_seconds
from planner.specs.base import Ranks
from tests.task_programs import by_lane, programs, task


@given(programs())
def test_parts_add_up_on_every_rank_and_on_average(program):
    timeline = simulate(*program, ranks=6)
    each = timeline.rank_breakdowns()
    assert len(each) == 6
    for parts in (*each, timeline.breakdown()):
        assert parts.compute + parts.exposed_comm + parts.idle == pytest.approx(timeline.step_seconds)
        assert min(parts.compute, parts.exposed_comm, parts.idle) >= 0
    assert each[timeline.busiest_rank()].idle == min(parts.idle for parts in each)
    assert each[5].idle == timeline.step_seconds  # no task names it


@pytest.mark.slow
@given(programs(shared=False))
def test_without_sharing_computing_is_the_time_in_compute_tasks_less_their_waiting(program):
    tasks, price = program
    timeline = simulate(tasks, price)
    lanes = by_lane(tasks, timeline)
    for rank, parts in enumerate(timeline.rank_breakdowns()):
        spent = sum(event.seconds - event.comm for _, event in lanes.get((rank, "compute"), ()))
        assert parts.compute == pytest.approx(spent)


def test_communication_under_compute_is_hidden():
    assert busy_seconds([(0.0, 4.0, 0.25), (3.0, 6.0, None), (5.0, 7.0, None)]) == (3.0, 1.0 + 3.0)


def test_tasks_that_share_a_device_wait_only_together():
    assert busy_seconds([(0.0, 2.0, 0.5), (1.0, 2.0, 0.0)]) == (1.5, 0.5)


def test_spread_and_trust_follow_the_critical_path():
    first, second, hidden = task(0), task(1), task(2, (1,))
    costs = {0: Cost(3.0, "measured", 0.1), 1: Cost(1.0, "analytic", 0.5), 2: Cost(2.0, "published", 0.9)}
    timeline = simulate([first, second, hidden], lambda t: costs[t.micro_batch])
    assert timeline.spread == pytest.approx((3 * 0.1 + 1 * 0.5) / 4)
    assert timeline.measured_share == pytest.approx(3 / 4)


def test_a_measured_task_may_have_an_event_per_rank():
    events = tuple(TaskEvent(task(0, (0, 1)).id, "F", "m", Ranks((rank,)), 0.5 * rank, 2.0) for rank in (0, 1))
    parts = Timeline(events, 2.0, 2).rank_breakdowns()
    assert [p.compute for p in parts] == [2.0, 1.5]


def test_ranks_of_the_same_tasks_share_a_representative():
    assert representative_ranks([Ranks(range(4)), Ranks((0, 1)), Ranks(range(4)), Ranks((3,))]) == {
        0: 0,
        1: 0,
        2: 2,
        3: 3,
    }


def test_a_task_is_represented_by_that_of_its_representative_group():
    timeline = Timeline((), 1.0, 3, {2: 0}, {"c/d": "a"}, {2: "c/d"})
    assert timeline.representative_task("llm[0-1]/F/0/c/d") == "llm[0-1]/F/0/a"
    for same in ("llm[0-1]/F/0/a", "llm[0-1]/F/0/d", "llm[0-1]/sync/step/all", ""):
        assert timeline.representative_task(same) == same
