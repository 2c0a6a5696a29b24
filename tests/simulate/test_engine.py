"""Invariants of the engine for every set of tasks, and schedules whose makespan is known exactly."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.cost_lines import Cost
from planner.errors import InputError
from planner.plan.legal.plan_laws import violations
from planner.plan.task import Task
from planner.plan.tasks.expand import expand
from planner.simulate import simulate
from tests.plans import encoder_plan, sharded_plan, staged_plan
from tests.task_programs import by_lane, programs, task


def longest_chain(tasks: list[Task], price) -> float:
    """The longest path through `after` alone, a lower bound of every timeline."""
    ends: dict[str, float] = {}
    for t in tasks:
        ends[t.id] = max((ends.get(a, 0.0) for a in t.after), default=0.0) + price(t).value
    return max(ends.values())


@given(programs())
def test_every_task_once_and_after_what_it_waits_for(program):
    tasks, price = program
    timeline = simulate(tasks, price)
    ends = {event.id: event.end for event in timeline.events}
    assert [event.id for event in timeline.events] == [t.id for t in tasks]
    for t, event in zip(tasks, timeline.events, strict=True):
        assert event.end == event.start + price(t).value
        assert all(event.start >= ends.get(a, 0.0) for a in t.after)


@given(programs())
def test_the_step_is_no_shorter_than_its_longest_chain_and_its_busiest_stream(program):
    tasks, price = program
    timeline = simulate(tasks, price)
    assert timeline.step_seconds >= longest_chain(tasks, price) - 1e-9
    for lane in by_lane(tasks, timeline).values():
        assert timeline.step_seconds >= sum(t.share * event.seconds for t, event in lane) - 1e-9


@pytest.mark.slow
@given(programs())
def test_what_runs_at_once_fits_the_device_and_is_of_different_groups(program):
    tasks, price = program
    for lane in by_lane(tasks, simulate(tasks, price)).values():
        for _, now in lane:
            running = [t for t, event in lane if event.start <= now.start < event.end]
            assert sum(t.share for t in running) <= 1 + 1e-9
            assert len({t.group for t in running}) == len(running)


@given(programs(shared=False))
def test_whole_devices_follow_the_longest_path_recurrence(program):
    """Without sharing a task starts as soon as its ranks' previous tasks and all it waits for have ended."""
    tasks, price = program
    ends: dict[str, float] = {}
    free: dict[tuple[int, str], float] = {}
    for t in tasks:
        lanes = [(rank, t.stream) for rank in t.ranks]
        start = max([free.get(lane, 0.0) for lane in lanes] + [ends.get(a, 0.0) for a in t.after])
        ends[t.id] = start + price(t).value
        free.update(dict.fromkeys(lanes, ends[t.id]))
    assert {event.id: event.end for event in simulate(tasks, price).events} == pytest.approx(ends)


@given(programs())
def test_the_same_tasks_give_the_same_timeline(program):
    assert simulate(*program) == simulate(*program)


@given(programs())
def test_causes_make_a_path_without_gaps(program):
    timeline = simulate(*program)
    path = timeline.critical_path()
    assert path[0].start == 0 and path[-1].end == timeline.step_seconds
    assert all(a.end == b.start for a, b in itertools.pairwise(path))
    assert timeline.spread == pytest.approx(0.1 if timeline.step_seconds else 0.0)
    assert timeline.measured_share == pytest.approx(1.0 if timeline.step_seconds else 0.0)


@given(st.integers(1, 6), st.integers(1, 12), st.sampled_from(("1f1b", "gpipe")))
def test_bubble_of_equal_stages(stages, micro_batches, order):
    """(p − 1) / (m + p − 1) of the step is idle, for GPipe and 1F1B alike."""
    plan = staged_plan(stages, micro_batches, order)
    assert not violations(plan)
    seconds = {"F": 0.7, "B": 1.3}
    timeline = simulate(expand(plan), lambda t: Cost(seconds.get(t.phase, 0.0), "measured", 0.0), plan.size)
    bubble = (stages - 1) / (micro_batches + stages - 1)
    assert timeline.step_seconds == pytest.approx(2.0 * (micro_batches + stages - 1), rel=1e-9)
    assert timeline.breakdown().idle / timeline.step_seconds == pytest.approx(bubble, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_sharded_micro_batches_cost_the_sum_of_their_maxima(seed):
    """ZeRO-3: all ranks synchronise around each micro-batch: a step is Σ (gather + max over groups of F + B) + sync."""
    chance = random.Random(seed)
    plan = sharded_plan(8, [[(0, 4), (4, 2), (6, 1)], [(0, 8)], [(0, 2), (2, 2), (4, 4)], [(0, 1)]])
    assert not violations(plan)
    tasks = expand(plan)
    costs = {t.id: Cost(chance.random() if t.tokens or "idle" not in t.group else 0.0, "measured", 0.0) for t in tasks}
    total = sum(costs[t.id].value for t in tasks if t.phase in ("gather", "sync", "update"))
    for micro_batch in range(4):
        groups: dict[str, float] = {}
        for t in tasks:
            if t.micro_batch == micro_batch and t.phase in ("F", "B"):
                groups[t.group] = groups.get(t.group, 0.0) + costs[t.id].value
        total += max(groups.values())
    assert simulate(tasks, lambda t: costs[t.id]).step_seconds == pytest.approx(total, rel=1e-12)


def test_a_collective_waits_for_the_slowest():
    slow, fast, gather = task(0, (0,)), task(1, (1,)), task(2, (0, 1), "gather")
    tasks = [slow, fast, gather.with_dependencies(slow.id, fast.id)]
    timeline = simulate(tasks, lambda t: Cost({0: 5.0, 1: 1.0, 2: 2.0}[t.micro_batch], "measured", 0.0))
    assert (timeline.events[2].start, timeline.step_seconds) == (5.0, 7.0)
    assert [event.id for event in timeline.critical_path()] == [slow.id, gather.id]


def test_collectives_on_one_stream_run_in_order():
    """Rank 1 has nothing before its second collective, but rank 0 is late for it."""
    tasks = [task(0, (0, 2), "gather"), task(1, (0, 1), "gather"), task(2, (1,))]
    timeline = simulate(tasks, lambda t: Cost(3.0, "measured", 0.0))
    assert [event.start for event in timeline.events] == [0.0, 3.0, 0.0]


def test_shares_that_fit_run_together_and_others_queue():
    tasks = [*(task(i, share=0.5, group=g) for i, g in enumerate("ghk")), task(3)]
    timeline = simulate(tasks, lambda t: Cost({0: 1.0, 1: 3.0, 2: 1.0, 3: 1.0}[t.micro_batch], "measured", 0.0))
    assert [event.start for event in timeline.events] == [0.0, 0.0, 1.0, 3.0]


def test_ten_tenths_fill_a_device():
    tasks = [task(i, share=0.1, group=f"g{i}") for i in range(20)]
    assert simulate(tasks, lambda t: Cost(1.0, "measured", 0.0)).step_seconds == 2.0


def test_a_group_does_one_thing_at_a_time():
    tasks = [task(i, share=0.5) for i in range(4)]
    assert simulate(tasks, lambda t: Cost(1.0, "measured", 0.0)).step_seconds == 4.0


def test_no_tasks_take_no_time():
    timeline = simulate([], lambda t: Cost(1.0, "measured", 0.0), ranks=2)
    assert (timeline.step_seconds, timeline.spread, timeline.breakdown().idle) == (0.0, 0.0, 0.0)


def test_encoder_work_simulates():
    plan = encoder_plan()
    assert not violations(plan)
    timeline = simulate(expand(plan), lambda t: Cost(float(t.phase in "FB"), "measured", 0.0), plan.size)
    parts = timeline.breakdown()
    assert parts.compute + parts.exposed_comm + parts.idle == pytest.approx(timeline.step_seconds)


def test_a_circle_is_named():
    first, second = task(0, (0,)), task(1, (0,))
    with pytest.raises(InputError, match=r"m\[0\]/F/0/g waits for m\[0\]/F/1/g"):
        simulate([first.with_dependencies(second.id), second], lambda t: Cost(1.0, "measured", 0.0))


def test_a_task_that_waits_for_itself_is_named():
    with pytest.raises(InputError, match=r"m\[0\]/F/0/g waits for m\[0\]/F/0/g"):
        simulate([task(0).with_dependencies(task(0).id)], lambda t: Cost(1.0, "measured", 0.0))


def test_two_tasks_of_one_name_are_an_error():
    with pytest.raises(InputError, match="two tasks are called"):
        simulate([task(0), task(0)], lambda t: Cost(1.0, "measured", 0.0))
