"""What ranks hold and may hold: one count and one tolerance for who makes orders and for who verifies them."""

from dataclasses import replace

import pytest

from planner.costs.memory.allowed import allowed_bytes
from planner.costs.pricing import pricing_of
from planner.orders import even
from planner.orders.timing import fits, held_peak
from planner.plan.expand import expand
from planner.specs.base import changed
from planner.units import GIB
from planner.verify.held import Holding, exceeds
from planner.verify.pipelined import pipelines
from tests.replica_plans import replicas
from tests.verify.priced import priced


@pytest.mark.parametrize("beyond", [0.0, 5e-10, 2e-9, 1e-6])
def test_an_order_fits_just_where_its_peak_does_not_exceed_the_cap(beyond):
    pipeline = even(1, 3, (1.0, 1.0, 1.0))
    order = ("FFFIIIWWW",)
    peak = held_peak(pipeline, order, 0)
    cap = peak / (1 + beyond)
    assert fits(replace(pipeline, cap=(cap,)), order) == (not exceeds(peak, cap))
    assert exceeds(peak, cap) == (beyond > 1e-9)


def test_a_stage_has_the_room_that_states_leave_and_holds_what_the_simulator_counts():
    plan = priced(replicas([[0, 1], [2, 0]], pp=2))
    pricing, tasks = pricing_of(plan), expand(plan)
    holding = Holding(plan, pricing)
    for replica in pipelines(plan, pricing, tasks):
        for stage, cap in enumerate(replica.pipeline.cap):
            rank = next(r for r in plan.layouts["llm"].ranks if r // 4 == stage)
            assert cap == holding.allowed(rank) - holding.always(rank)
    (device,) = plan.uses.devices.values()
    assert holding.allowed(0) == allowed_bytes(device, plan.uses.limits, plan.uses.prices.accounting)
    forwards = [task for task in tasks if task.phase == "F"]
    counted = sorted(held for each in pipelines(plan, pricing, tasks) for row in each.pipeline.held for held in row)
    assert counted == sorted(holding.forward(task) for task in forwards)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rank_always_holds_states_alone_where_nothing_is_gathered_or_copied(dtype):
    """On a CPU, which has no workspaces and no buffers; an update then takes nothing besides."""
    plan = priced(replicas([[0, 1], [2, 0]], pp=2))
    plan = changed(plan, layouts={name: changed(each, dtype=dtype, zero=1) for name, each in plan.layouts.items()})
    holding = Holding(plan, pricing_of(plan))
    for rank in range(plan.size):
        assert holding.always(rank) == float(holding.fixed(rank).states) > 0 == holding.update(rank)


def test_the_chance_is_half_where_all_is_taken_and_the_jobs_where_all_is_that_is_allowed():
    """Whatever the limit, until the margin is what binds."""
    plan = priced(replicas([[0, 1], [2, 0]], pp=2))
    whole = plan.uses.devices["toy"].memory_gib * GIB
    for chance in (0.01, 0.05, 0.2):
        limits = changed(plan.uses.limits, oom_chance=chance, memory_margin=0.0)
        holding = Holding(changed(plan, uses=changed(plan.uses, limits=limits)), pricing_of(plan))
        assert holding.chance(0, whole) == pytest.approx(0.5)
        assert holding.chance(0, holding.allowed(0)) == pytest.approx(chance)
    limits = changed(plan.uses.limits, oom_chance=1.0, memory_margin=0.5)
    assert Holding(changed(plan, uses=changed(plan.uses, limits=limits)), pricing_of(plan)).allowed(0) == whole / 2
