"""Offloaded items: legal on devices with a way to their host, counted by what stays, carried by their tasks."""

import pytest

from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Group, Layout, OffloadedItem, Plan, Step
from planner.plan.tasks.expand import expand
from planner.specs.base import Ranks, with_fields
from planner.specs.job import Limits
from tests.plans import decoder, plan_of, uses

SIZES = {0: 90, 1: 30}


def offloaded(ratio: float, host_gb_per_s: float | None = 10.0, cap: int | None = None) -> Plan:
    """Two items on two ranks, the first one offloaded; the model has 10 layers."""
    facts = uses(2, {"llm": decoder(10)}, {"llm": SIZES})
    device = with_fields(facts.devices["toy"], host_gb_per_s=host_gb_per_s)
    facts = with_fields(facts, devices={"toy": device}, limits=Limits(tokens_per_rank=cap))
    ranks = Ranks(range(2))
    return plan_of(
        2,
        facts,
        {"llm": Layout(ranks=ranks, dp=2, zero=1)},
        {"g": Group(ranks=ranks, split={"ring": 2})},
        Step(sync="step", micro_batches=({"g": (OffloadedItem(item=0, offload=ratio), 1)},)),
    )


def test_a_device_without_a_way_to_its_host_holds_all():
    assert violations(offloaded(0.5)) == violations(offloaded(0.0, None)) == []
    (found,) = violations(offloaded(0.5, None))
    assert "item 0 is offloaded from `toy`" in found.message
    assert found.where == "steps[0].micro_batches[0]" and "uses.devices.toy" in found.fix


@pytest.mark.parametrize(("ratio", "holds"), [(0.0, 120), (0.5, 84), (1.0, 48)])
def test_what_is_offloaded_does_not_count_against_the_cap(ratio, holds):
    """Of 10 layers 8 can go: 90 tokens hold as many as 90 · (1 − 0.8·r), and 30 stay."""
    assert violations(offloaded(ratio, cap=holds // 2)) == []
    (found,) = violations(offloaded(ratio, cap=holds // 2 - 1))
    assert f"group g holds {holds} tokens" in found.message


def test_tasks_carry_what_leaves_the_device():
    for task in expand(offloaded(0.5)):
        if task.phase in ("F", "B"):
            assert (task.offload, task.ring) == ((0.5, 0.0), 2)
    assert all(task.offload == () for task in expand(offloaded(0.0)))
