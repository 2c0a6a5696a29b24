"""No order beats the floor: against every order of small pipelines, and against what is proven best of larger ones."""

from dataclasses import replace

import pytest

from planner.orders import bound_fixed_sequence, objective_seconds, search_order
from planner.orders.cp_sat_order import solve_order_exactly
from planner.orders.slot_timing import fits_memory
from planner.programs.solver_answer import SolverLimits
from tests.pipelines import all_orders, made_up, uniform_pipeline

SHAPES = [(1, 3), (2, 2), (2, 3), (3, 2), (4, 2)]


@pytest.mark.parametrize("objective", ["step", "span"])
@pytest.mark.parametrize(("stages", "micro_batches"), SHAPES)
@pytest.mark.parametrize("seed", range(6))
def test_no_order_of_a_small_pipeline_beats_the_floor(seed, stages, micro_batches, objective):
    pipeline = made_up(seed, stages, micro_batches)
    best = min(objective_seconds(pipeline, order, objective) for order in all_orders(pipeline))
    assert bound_fixed_sequence(pipeline, objective).seconds <= best


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 3), (2, 2), (3, 2)])
@pytest.mark.parametrize("seed", range(2))
def test_cp_sat_finds_the_best_of_all_orders_and_proves_no_more(seed, stages, micro_batches):
    pipeline = made_up(seed, stages, micro_batches)
    best = min(objective_seconds(pipeline, order, "step") for order in all_orders(pipeline))
    exact = solve_order_exactly(pipeline, "step", SolverLimits(effort=2))
    assert exact.proven
    assert exact.bound <= best
    assert exact.bound == pytest.approx(best, rel=1e-3)  # the grid's
    assert fits_memory(pipeline, exact.order)
    assert objective_seconds(pipeline, exact.order, "step") == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("seed", [1])
def test_spans_are_no_longer_where_stages_choose_when_to_start(seed):
    pipeline = made_up(seed, 2, 2)
    best = min(objective_seconds(pipeline, order, "span") for order in all_orders(pipeline))
    exact = solve_order_exactly(pipeline, "span", SolverLimits(effort=2))
    assert bound_fixed_sequence(pipeline, "span").seconds * (1 - 1e-3) <= exact.bound <= best


@pytest.mark.parametrize("room", [1, 2, 3])
def test_the_floor_stays_below_what_is_proven_of_a_larger_one(room):
    pipeline = uniform_pipeline(3, 3, (18.522, 18.086, 9.337), 0.601, 2.0 * room)
    floor, exact = (
        bound_fixed_sequence(pipeline, "step").seconds,
        solve_order_exactly(pipeline, "step", SolverLimits(effort=2)),
    )
    assert exact.proven
    assert floor <= objective_seconds(pipeline, exact.order, "step")


def test_each_part_of_the_floor_binds_somewhere():
    """One micro-batch at a time; the first stage that has to wait for memory; and the way through the last stage."""
    seconds = 18.522, 18.086, 9.337
    alone = uniform_pipeline(8, 24, seconds, 0.601, 2.0)
    assert bound_fixed_sequence(alone, "step").seconds == pytest.approx(
        24 * (8 * 18.522 + 8 * 18.086 + 14 * 0.601 + 9.337)
    )
    idle = (7 * 18.086 + 14 * 0.601) + (7 * 18.522 + 14 * 0.601 - 7 * 9.337)  # filling, and draining
    tight = uniform_pipeline(8, 24, seconds, 0.601, 16.0)
    assert bound_fixed_sequence(tight, "span").seconds == pytest.approx(24 * sum(seconds) + idle)
    wide = uniform_pipeline(8, 24, seconds, 0.601, 32.0)
    through = 7 * (18.522 + 18.086 + 2 * 0.601) + 24 * (18.522 + 18.086) + 9.337
    assert bound_fixed_sequence(wide, "span").seconds == pytest.approx(through)
    assert bound_fixed_sequence(wide, "step").seconds == pytest.approx(7 * (18.522 + 0.601) + 24 * sum(seconds))


@pytest.mark.parametrize("objective", ["step", "span"])
@pytest.mark.parametrize("seed", range(8))
def test_more_memory_never_raises_the_floor(seed, objective):
    pipeline = made_up(seed, 4, 6, 1.0)
    floors = [
        bound_fixed_sequence(
            replace(pipeline, capacity=tuple(cap * more for cap in pipeline.capacity)), objective
        ).seconds
        for more in (1.0, 1.3, 2.0, 3.5, 9.0)
    ]
    assert floors == sorted(floors, reverse=True)


@pytest.mark.parametrize("objective", ["step", "span"])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_found_is_never_below_the_floor(seed, objective):
    pipeline = made_up(seed, 4, 6)
    found = search_order(pipeline, objective, effort=1)
    assert found.seconds >= found.bound.seconds
