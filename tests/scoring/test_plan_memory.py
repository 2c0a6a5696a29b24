"""What ranks hold and may hold: one count and one tolerance for who makes orders and for who verifies them."""

from dataclasses import replace

import pytest

from planner.costs.memory.allowed_memory import allowed_bytes
from planner.costs.pricing import pricing_of
from planner.orders.slot_timing import fits_memory, peak_activations
from planner.plan.tasks.expand import expand
from planner.scoring.bounds.pipeline_passes import replica_pipelines
from planner.scoring.plan_memory import PlanMemory, exceeds_memory
from planner.specs.base import with_fields
from planner.units import GIB
from tests.pipelines import uniform_pipeline
from tests.replica_plans import replicas
from tests.scoring.priced import priced


@pytest.mark.parametrize("beyond", [0.0, 5e-10, 2e-9, 1e-6])
def test_an_order_fits_just_where_its_peak_does_not_exceed_the_cap(beyond):
    pipeline = uniform_pipeline(1, 3, (1.0, 1.0, 1.0))
    order = ("FFFIIIWWW",)
    peak = peak_activations(pipeline, order, 0)
    cap = peak / (1 + beyond)
    assert fits_memory(replace(pipeline, capacity=(cap,)), order) == (not exceeds_memory(peak, cap))
    assert exceeds_memory(peak, cap) == (beyond > 1e-9)


def test_a_stage_has_the_room_that_states_leave_and_holds_what_the_simulator_counts():
    plan = priced(replicas([[0, 1], [2, 0]], pp=2))
    pricing, tasks = pricing_of(plan), expand(plan)
    holding = PlanMemory(plan, pricing)
    for replica in replica_pipelines(plan, pricing, tasks):
        for stage, cap in enumerate(replica.pipeline.capacity):
            rank = next(r for r in plan.layouts["llm"].ranks if r // 4 == stage)
            assert cap == holding.allowed_bytes(rank) - holding.static_bytes(rank)
    (device,) = plan.uses.devices.values()
    assert holding.allowed_bytes(0) == allowed_bytes(device, plan.uses.limits, plan.uses.prices.accounting)
    forwards = [task for task in tasks if task.phase == "F"]
    counted = sorted(
        held for each in replica_pipelines(plan, pricing, tasks) for row in each.pipeline.activations for held in row
    )
    assert counted == sorted(holding.forward_bytes(task) for task in forwards)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rank_always_holds_states_alone_where_nothing_is_gathered_or_copied(dtype):
    """On a CPU, which has no workspaces and no buffers; an update then takes nothing besides."""
    plan = priced(replicas([[0, 1], [2, 0]], pp=2))
    plan = with_fields(
        plan, layouts={name: with_fields(each, dtype=dtype, zero=1) for name, each in plan.layouts.items()}
    )
    holding = PlanMemory(plan, pricing_of(plan))
    for rank in range(plan.size):
        assert (
            holding.static_bytes(rank) == float(holding.static_footprint(rank).states) > 0 == holding.update_bytes(rank)
        )


def test_the_chance_is_half_where_all_is_taken_and_the_jobs_where_all_is_that_is_allowed():
    """Whatever the limit, until the margin is what binds."""
    plan = priced(replicas([[0, 1], [2, 0]], pp=2))
    whole = plan.uses.devices["toy"].memory_gib * GIB
    for chance in (0.01, 0.05, 0.2):
        limits = with_fields(plan.uses.limits, oom_chance=chance, memory_margin=0.0)
        holding = PlanMemory(with_fields(plan, uses=with_fields(plan.uses, limits=limits)), pricing_of(plan))
        assert holding.oom_chance(0, whole) == pytest.approx(0.5)
        assert holding.oom_chance(0, holding.allowed_bytes(0)) == pytest.approx(chance)
    limits = with_fields(plan.uses.limits, oom_chance=1.0, memory_margin=0.5)
    assert (
        PlanMemory(with_fields(plan, uses=with_fields(plan.uses, limits=limits)), pricing_of(plan)).allowed_bytes(0)
        == whole / 2
    )
