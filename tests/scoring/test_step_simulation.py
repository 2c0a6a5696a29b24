"""A step told from a few rounds of its pipeline is the step as simulated to its end, to the last event."""

from dataclasses import replace
from itertools import pairwise
from math import prod
from random import Random

import pytest

from planner.costs import Pricing, pricing_of
from planner.layouts.space.layout_fields import SEARCHED_FIELDS, layout_of
from planner.layouts.space.layout_problem import layout_problem
from planner.plan.mesh.identical_groups import NO_IDENTICAL_GROUPS, identical_groups
from planner.plan.schedules import schedule_slots
from planner.plan.tasks import rounds
from planner.plan.tasks.expand import expand
from planner.scoring import step_simulation as stepping
from planner.scoring.bounds.step_bounds import busiest_rank_seconds
from planner.scoring.score import score, whole_score
from planner.simulate.equal_micro_batches import equal_step_seconds
from planner.specs.base import with_fields
from planner.strategies.static.layouts_plan import draft_of_layouts
from tests.static_jobs import small_cluster, static_inputs

EQUAL = 1e-9


def equal_plan(folder, count, schedule="", dp=2, **few):
    """A static plan of so many equal micro-batches on each replica."""
    ranks = dp * prod(few.get(name, 1) for name in ("tp", "cp", "pp"))
    fixed = f"schedule: {schedule}" if schedule else ""
    cluster = small_cluster(folder, "h100-80gb", ranks)
    inputs = static_inputs(folder, "llama-3-8b", cluster, (4096,) * (count * dp), fixed)
    problem = layout_problem(inputs)
    numbers = {**dict.fromkeys(SEARCHED_FIELDS, 1), "zero": 0, "recompute": 0, **few}
    return draft_of_layouts(inputs, {inputs.module: layout_of(problem.trained, numbers)})


CASES = [
    ("", {"pp": 2, "tp": 2}, 61),
    ("", {"pp": 3}, 70),  # stages of 11, 11 and 10 layers
    ("", {"pp": 4, "zero": 1}, 83),
    ("", {"pp": 2, "zero": 3}, 50),
    ("", {"pp": 4, "zero": 2, "cp": 2}, 78),
    ("", {"pp": 2, "vpp": 4}, 48),
    ("", {"pp": 4, "vpp": 2, "zero": 1}, 96),
    ("zb_h1", {"pp": 4}, 81),
    ("zb_h2", {"pp": 4, "zero": 1}, 82),
    ("zb_h2", {"pp": 2, "tp": 2}, 51),
]


def random_cases(count):
    """Cases of random degrees, stages and schedules."""
    chance = Random(7)
    for _ in range(count):
        pp, schedule = chance.choice((2, 3, 4, 5, 8)), chance.choice(("", "", "zb_h1", "zb_h2"))
        vpp = 1 if schedule else chance.choice((1, 1, 2, 3))
        few = {"pp": pp, "vpp": vpp, "tp": chance.choice((1, 2)), "zero": chance.choice((0, 1, 2, 3))}
        count = pp * chance.randint(18, 30) + (0 if vpp > 1 else chance.randrange(pp))
        yield schedule, few, count


@pytest.mark.parametrize(("schedule", "few", "count"), CASES)
def test_a_step_told_from_rounds_is_the_whole_step(tmp_path, monkeypatch, schedule, few, count):
    plan = equal_plan(tmp_path, count, schedule, **few)
    told = score(plan)
    assert told.timeline.repetition is not None
    assert sum(told.timeline.event_counts) > len(told.tasks)
    monkeypatch.setattr(stepping, "SETTLING", ())
    simulated = score(plan)
    assert simulated.timeline.repetition is None
    assert_equal_scores(told, simulated)


def assert_equal_scores(told, simulated):
    near = lambda value: pytest.approx(value, rel=EQUAL)  # noqa: E731
    one, other = told.timeline, simulated.timeline
    assert one.step_seconds == near(other.step_seconds)
    for mine, theirs in zip(one.rank_breakdowns(), other.rank_breakdowns(), strict=True):
        assert mine.compute == near(theirs.compute)
        assert mine.exposed_comm == pytest.approx(theirs.exposed_comm, rel=EQUAL, abs=EQUAL * one.step_seconds)
    assert one.spread == near(other.spread)
    assert sum(event.seconds for event in one.critical_path()) == near(one.step_seconds)
    assert one.module_seconds() == {key: near(value) for key, value in other.module_seconds().items()}
    assert sum(one.event_counts) == len(other.events)
    assert told.memory.peaks == near(simulated.memory.peaks)
    assert told.bound.by == simulated.bound.by
    assert told.bound.seconds == near(simulated.bound.seconds)
    assert busiest_rank_seconds(told.tasks, one) == near(busiest_rank_seconds(simulated.tasks, other))
    whole = whole_score(told)
    events = {event.id: event for event in whole.timeline.events}
    assert len(events) == len(whole.timeline.events)
    assert events.keys() == {event.id for event in other.events}
    for event in other.events:
        mine = events[event.id]
        assert (mine.start, mine.end) == pytest.approx((event.start, event.end), rel=EQUAL, abs=EQUAL)
        assert mine[:4] == event[:4]
    tasks = {task.id: task for task in whole.tasks}
    for task in simulated.tasks:
        if task.micro_batch is not None:
            mine = tasks[task.id]
            assert (mine.ranks, mine.peers, mine.sizes, mine.after) == (task.ranks, task.peers, task.sizes, task.after)
    assert whole.memory.peaks == near(simulated.memory.peaks)
    for mine, theirs in zip(whole.memory.curves, simulated.memory.curves, strict=True):
        assert mine[-1] == near(theirs[-1])
        assert held_seconds(mine) == near(held_seconds(theirs))


def held_seconds(curve):
    return sum(held * (after - at) for (at, held), (after, _) in pairwise(curve))


@pytest.mark.slow
@pytest.mark.parametrize(("schedule", "few", "count"), [*random_cases(24)])
@pytest.mark.every(3)
def test_random_steps_take_as_long_as_the_whole_simulation(tmp_path, schedule, few, count):
    plan = equal_plan(tmp_path, count, schedule, **few)
    pricing, alike = pricing_of(plan), identical_groups(plan, 0)
    whole = stepping.timed_tasks(plan, 0, pricing, alike, stepping.AS_PRICED)[1]
    told = stepping.simulated_step(plan, 0, pricing, alike)[1]
    assert told.step_seconds == pytest.approx(whole.step_seconds, rel=EQUAL)
    assert stepping.step_seconds(plan) == whole.step_seconds


@pytest.mark.parametrize(("schedule", "few", "count"), [*CASES, ("gpipe", {"pp": 4}, 9), ("", {"pp": 2, "zero": 3}, 3)])
def test_copied_micro_batches_take_as_long_as_expanded_ones(tmp_path, schedule, few, count):
    plan = equal_plan(tmp_path, count, schedule, **few)
    pricing, alike = pricing_of(plan), identical_groups(plan, 0)
    assert (
        equal_step_seconds(plan, 0, alike.ranks, pricing.with_concurrency)
        == stepping.timed_tasks(plan, 0, pricing, alike, stepping.AS_PRICED)[1].step_seconds
    )


@pytest.mark.parametrize("few", [{"pp": 2, "tp": 2}, {"pp": 4, "vpp": 2}])
def test_gradients_reduced_as_they_come_are_exposed_in_each_micro_batch(tmp_path, few):
    """Under ZeRO-2, also of a step from which rounds are left out; once a step where they are held until its end."""
    plan = equal_plan(tmp_path, 96, zero=2, **few)
    reduced = with_fields(plan.uses.prices.accounting, holds_gradients=False)
    plan, held = (
        with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, accounting=reduced))),
        plan,
    )
    pricing, alike = pricing_of(plan), identical_groups(plan, 0)
    tasks, whole = stepping.timed_tasks(plan, 0, pricing, alike, stepping.AS_PRICED)
    told = stepping.simulated_step(plan, 0, pricing, alike)[1]
    assert told.repetition and told.step_seconds == pytest.approx(whole.step_seconds, rel=EQUAL)
    assert stepping.step_seconds(plan) == pytest.approx(whole.step_seconds, rel=EQUAL)
    sync = next(task for task in tasks if task.phase == "sync" and task.micro_batch is None)
    each, once = (pricing_of(some).with_concurrency(tasks)(sync).value for some in (plan, held))
    assert each == pytest.approx(96 * once, rel=EQUAL) and once > 0.0


@pytest.mark.parametrize("few", [{"pp": 2, "zero": 3}, {"pp": 2, "vpp": 2, "zero": 2}, {"tp": 2, "zero": 3}])
def test_tasks_alike_are_priced_once_and_as_each_alone(tmp_path, few):
    plan = equal_plan(tmp_path, 8, **few)
    tasks = expand(plan)
    price = pricing_of(plan).with_concurrency(tasks)
    assert price.each(tasks) == [price(task) for task in tasks]


def test_weights_that_stay_gathered_are_gathered_in_the_first_micro_batch_alone(tmp_path):
    plan = equal_plan(tmp_path, 8, pp=2, zero=3)
    stay = with_fields(plan.uses.prices.accounting, keeps_gathered=True)
    kept = with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, accounting=stay)))
    tasks = expand(plan)
    costs = pricing_of(kept).with_concurrency(tasks).each(tasks)
    found = [(task.micro_batch, cost.value) for task, cost in zip(tasks, costs, strict=True) if task.phase == "gather"]
    assert len(found) == 16 and all((seconds > 0) == (not number) for number, seconds in found)


@pytest.mark.every(5)
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb_h1", "zb_h2"])
@pytest.mark.parametrize("pp", [2, 3, 4, 7])
@pytest.mark.parametrize("settling", [0, 2])
def test_a_longer_step_has_more_of_the_same_rounds(tmp_path, schedule, pp, settling):
    """Slots of the shorter step, with the last watched round as often again as rounds were left out."""
    vpp, spare, more = (3, 0, 4) if schedule == "interleaved" else (1, pp - 1, 4)
    few = (rounds.WARM_AND_DRAINED + settling + rounds.WATCHED) * pp + spare
    layout = equal_plan(tmp_path, 2 * pp, dp=1, pp=pp, vpp=vpp).layouts["llm"]
    watched = rounds.watched_rounds(layout, schedule, few, settling)
    short, long = (schedule_slots(schedule, pp, count, vpp) for count in (few, few + more * pp))
    for positions, of_rank, longer in zip(watched.positions, short, long, strict=True):
        numbers = [positions[slot] // watched.slots for slot in of_rank]
        assert {*range(rounds.WATCHED)} <= {*numbers}
        ends = [slot for slot, number in zip(of_rank, numbers, strict=True) if number < rounds.BEHIND]
        again = [slot for slot, number in zip(of_rank, numbers, strict=True) if number == rounds.WATCHED - 1]
        behind = of_rank[len(ends) :]
        later = [(phase, at + by * pp, chunk) for by in range(1, more + 1) for phase, at, chunk in again]
        assert longer == ends + later + [(phase, at + more * pp, chunk) for phase, at, chunk in behind]


def uneven_prices(monkeypatch, seed):
    """Passes of all stages nearly as long as each other, after a slow first micro-batch: what is not critical takes
    long to show.
    """
    plain = Pricing.with_concurrency

    def with_concurrency(self, tasks, left_out=0):
        price = plain(self, tasks, left_out)

        def of(task):
            cost, chance = price(task), Random(f"{seed} {task.layers} {task.phase} {task.of}")
            by = chance.uniform(1.0, 1.02)
            return replace(cost, value=cost.value * by * (chance.uniform(1.0, 9.0) if task.micro_batch == 0 else 1.0))

        return of

    monkeypatch.setattr(Pricing, "with_concurrency", with_concurrency)


@pytest.mark.slow
def test_a_step_that_has_not_settled_is_simulated_further(tmp_path, monkeypatch):
    """Whatever the stages take, a step is told from rounds that repeat, or simulated to its end."""
    plan = equal_plan(tmp_path, 400, dp=1, pp=4)
    pricing = pricing_of(plan)
    at_once = len(stepping.simulated_step(plan, 0, pricing, NO_IDENTICAL_GROUPS)[0])
    for seed in range(4):
        uneven_prices(monkeypatch, seed)
        tasks, told = stepping.simulated_step(plan, 0, pricing, NO_IDENTICAL_GROUPS)
        assert len(tasks) > at_once
        whole = stepping.timed_tasks(plan, 0, pricing, NO_IDENTICAL_GROUPS, stepping.AS_PRICED)[1]
        assert told.step_seconds == pytest.approx(whole.step_seconds, rel=EQUAL)


def test_unequal_micro_batches_and_few_of_them_are_simulated_whole(tmp_path):
    plan = equal_plan(tmp_path, 9, dp=1, pp=2)
    assert rounds.shortened(plan, 0, 0) is None
    inputs = static_inputs(
        tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", 2), [4096] * 60 + [1024] * 20, "pp: 2"
    )
    problem = layout_problem(inputs)
    numbers = {**dict.fromkeys(SEARCHED_FIELDS, 1), "zero": 0, "recompute": 0, "pp": 2}
    unequal = draft_of_layouts(inputs, {inputs.module: layout_of(problem.trained, numbers)})
    assert rounds.shortened(unequal, 0, 0) is None
    assert score(unequal).timeline.repetition is None


def test_a_gpipe_step_has_no_rounds(tmp_path):
    assert rounds.shortened(equal_plan(tmp_path, 60, "gpipe", dp=1, pp=2), 0, 0) is None
