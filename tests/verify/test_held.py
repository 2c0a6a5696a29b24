"""What ranks hold and may hold: one count and one tolerance for who makes orders and for who verifies them."""

from dataclasses import replace

import pytest

from planner.costs.memory.caps import memory_cap
from planner.costs.pricing import pricing_of
from planner.orders import even
from planner.orders.timing import fits, held_peak
from planner.plan.expand import expand
from planner.specs.base import changed
from planner.verify.held import activations, cap_of, exceeds, lasting, stage_states, states, updating
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
    left, on_rank = activations(plan, pricing), states(plan)
    for replica in pipelines(plan, pricing, tasks):
        for stage, cap in enumerate(replica.pipeline.cap):
            rank = next(r for r in plan.layouts["llm"].ranks if r // 4 == stage)
            assert on_rank(rank) == stage_states(plan, "llm", stage)
            assert cap == cap_of(plan, rank) - on_rank(rank)
    (device,) = plan.uses.devices.values()
    assert cap_of(plan, 0) == memory_cap(device, plan.uses.limits)
    forwards = [task for task in tasks if task.phase == "F"]
    counted = sorted(held for each in pipelines(plan, pricing, tasks) for row in each.pipeline.held for held in row)
    assert counted == sorted(left(task) for task in forwards)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_stays_and_what_an_update_takes_are_the_states_where_nothing_is_gathered_or_copied(dtype):
    plan = priced(replicas([[0, 1], [2, 0]], pp=2))
    plan = changed(plan, layouts={name: changed(each, dtype=dtype, zero=1) for name, each in plan.layouts.items()})
    stays, beside, whole = lasting(plan), updating(plan), states(plan)
    for rank in range(plan.size):
        assert 0 < beside(rank) < stays(rank) and stays(rank) + beside(rank) == pytest.approx(whole(rank), abs=2)
