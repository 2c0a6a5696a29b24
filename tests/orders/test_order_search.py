"""Orders that are found: complete, within memory, no worse than the hand-made ones, the best where all can be tried."""

from itertools import pairwise

import pytest

from planner.errors import Infeasible
from planner.orders import objective_seconds, search_order, slot_times
from planner.orders.anneal import anneal
from planner.orders.construct import construct, tune_rule
from planner.orders.slot_timing import fits_memory
from planner.plan.schedules import schedule_slots
from tests.pipelines import all_orders, made_up, uniform_pipeline

LETTERS = {"F": "F", "B": "IW", "I": "I", "W": "W"}
HAND_MADE = ("1f1b", "zb_h1", "zb_h2", "gpipe")


def hand_made(name, stages, micro_batches):
    slots = schedule_slots(name, stages, micro_batches)
    return tuple("".join(LETTERS[phase] for phase, _, _ in of_stage) for of_stage in slots)


def held_over_time(pipeline, order, stage):
    """The most held, counted again from when slots begin and end."""
    tables = {"F": pipeline.forward, "I": pipeline.input_grads, "W": pipeline.weight_grads}
    changes, done = [], dict.fromkeys("FIW", 0)
    for letter, start in zip(order[stage], slot_times(pipeline, order).starts[stage], strict=True):
        k = done[letter]
        done[letter] += 1
        held, kept, end = (
            pipeline.activations[stage][k],
            pipeline.kept_for_weights[stage][k],
            start + tables[letter][stage][k],
        )
        changes.append({"F": (start, held), "I": (end, kept - held), "W": (end, -kept)}[letter])
    peak = now = 0.0
    for _, change in sorted(changes):  # what ends when another begins has gone by then
        now += change
        peak = max(peak, now)
    return peak


@pytest.mark.parametrize("objective", ["step", "span"])
@pytest.mark.parametrize("seed", range(6))
def test_orders_are_complete_and_never_hold_more_than_they_may(seed, objective):
    pipeline = made_up(seed, 4, 5)
    found = search_order(pipeline, objective, effort=1)
    assert found.seconds == objective_seconds(pipeline, found.order, objective)
    for stage, word in enumerate(found.order):
        assert sorted(word) == sorted("FIW" * 5)
        assert held_over_time(pipeline, found.order, stage) <= pipeline.capacity[stage] * (1 + 1e-6)


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 3), (2, 2), (3, 2)])
@pytest.mark.parametrize("seed", range(2))
def test_it_is_the_best_of_all_orders_of_a_small_pipeline(seed, stages, micro_batches):
    pipeline = made_up(seed, stages, micro_batches)
    best = min(objective_seconds(pipeline, order, "step") for order in all_orders(pipeline))
    found = search_order(pipeline, effort=3)
    assert found.seconds == pytest.approx(best, rel=1e-3)
    assert found.bound.seconds <= best


@pytest.mark.parametrize("room", [3, 4, 6, 8, 12])
def test_it_is_never_worse_than_a_hand_made_order_that_fits(room):
    pipeline = uniform_pipeline(4, 10, (1.0, 1.1, 0.7), 0.05, 2.0 * room)
    known = [hand_made(name, 4, 10) for name in HAND_MADE]
    allowed = [order for order in known if fits_memory(pipeline, order)]
    found = search_order(pipeline, effort=1, known=known)
    assert all(found.seconds <= objective_seconds(pipeline, order, "step") for order in allowed)
    assert len(allowed) == sum(room >= held for held in (4, 4, 7, 10))


@pytest.mark.parametrize("objective", ["step", "span"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.every(6)
def test_more_memory_never_makes_what_is_constructed_worse(seed, objective):
    """Of whole micro-batches."""
    wide = made_up(seed, 3, 8)
    reached = [construct(wide.with_capacity_for(room), objective, 0.0).seconds for room in (1, 2, 3, 4, 5, 7, 8)]
    assert all(later <= earlier for earlier, later in pairwise(reached))
    assert reached[-1] < reached[0]


@pytest.mark.soak
def test_the_same_input_gives_the_same_order():
    pipeline = made_up(3, 4, 6)
    made = construct(pipeline, "step", 0.0)
    assert construct(pipeline, "step", 0.0) == made
    assert tune_rule(made, "step", 300_000, 0.0, 5) == tune_rule(made, "step", 300_000, 0.0, 5)
    assert len({anneal(pipeline, "step", made.order, 300_000, 0.0, 5) for _ in range(2)}) == 1


@pytest.mark.soak
def test_moving_slots_about_finds_what_no_rule_makes():
    pipeline = uniform_pipeline(4, 8, (18.522, 18.086, 9.337), 0.601, 6.0)
    made = construct(pipeline, "step", 0.0)
    better = anneal(pipeline, "step", made.order, 4_000_000, 0.0, 0)
    assert objective_seconds(pipeline, better, "step") < made.seconds * 0.99


# The zero-bubble scheduler's own results on these inputs, in its own measure: the longest stage from first to last.
PUBLISHED = [
    (24, (18.522, 18.086, 9.337), 0.601, 8, 1310.4),
    (24, (18.522, 18.086, 9.337), 0.601, 16, 1152.6),
    (64, (29.718, 29.444, 19.927), 0.527, 8, 5351.1),
]


@pytest.mark.parametrize(("micro_batches", "seconds", "transfer", "room", "published"), PUBLISHED)
def test_what_the_zero_bubble_scheduler_reaches_is_reached_and_cannot_be_beaten(
    micro_batches, seconds, transfer, room, published
):
    found = search_order(uniform_pipeline(8, micro_batches, seconds, transfer, 2.0 * room), "span", effort=1)
    assert found.seconds <= published + 0.05
    assert found.optimal


def test_a_stage_that_cannot_hold_one_micro_batch_is_said():
    with pytest.raises(Infeasible, match="stage 0 holds 1"):
        search_order(uniform_pipeline(2, 2, (1, 1, 1), 0.0, 1.5))
