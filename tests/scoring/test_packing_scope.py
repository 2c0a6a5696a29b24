"""A step that no strategy would make can be shorter than any packing; what bounds it is its busiest rank."""

from pathlib import Path

import pytest

from planner import files
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Group, OffloadedItem, Plan, SharedDeviceItems
from planner.scoring.bounds.bounded_step import standard_groups
from planner.scoring.score import score
from planner.specs.base import Ranks, with_fields
from tests.plans import degrees_of

GOLDEN = Path(__file__).parents[1] / "golden"
PLANS = {case: files.read(GOLDEN / case / "plan.yaml", Plan) for case in (
    "sequence_groups/demo", "sequence_groups/two-kinds", "data_ranks/offload-h200x8", "by_hand/mixed-groups",
)}  # fmt: skip


def bound_by(plan: Plan) -> str:
    """What bounds a legal plan, at no more than it takes."""
    assert violations(plan) == []
    found = score(plan)
    assert found.bound.seconds <= found.step_seconds * (1 + 1e-9)
    return found.bound.by


def with_group(plan: Plan, name: str, group: Group) -> Plan:
    return with_fields(plan, groups={**plan.groups, name: group})


@pytest.mark.parametrize("case", PLANS)
@pytest.mark.every(2)
def test_plans_of_strategies_are_bounded_over_all_packings(case):
    assert bound_by(PLANS[case]) != "busiest_rank"


def as_rings(plan: Plan) -> Plan:
    degrees = degrees_of(plan)
    rings = {name: with_fields(group, split={"ring": degrees[name]}) for name, group in plan.groups.items()}
    return with_fields(plan, groups=rings)


@pytest.mark.parametrize("case", PLANS)
def test_groups_split_in_another_way_are_not(case):
    assert bound_by(as_rings(PLANS[case])) == "busiest_rank"


def test_all_rings_can_be_shorter_than_the_bound_for_the_split_that_strategies_price():
    """Where blocks hide behind attention: so that bound does not hold for them."""
    assert any(score(as_rings(plan)).step_seconds < score(plan).bound.seconds for plan in PLANS.values())


def test_a_split_of_one_is_said_in_any_way():
    plan = next(
        plan for name, plan in PLANS.items() if name.startswith("sequence_groups") and 1 in degrees_of(plan).values()
    )
    alone = next(name for name, degree in degrees_of(plan).items() if degree == 1)
    for split in ({}, {"ulysses": 1}, {"ring": 1}):
        assert standard_groups(with_group(plan, alone, with_fields(plan.groups[alone], split=split)), 0, "llm")


def test_groups_across_kinds_of_ranks_are_not():
    """The wide groups trade a half: each then has ranks of both kinds."""
    plan = PLANS["sequence_groups/two-kinds"]
    for name, ranks in (("g0-3", (0, 1, 4, 5)), ("g4-7", (2, 3, 6, 7))):
        plan = with_group(plan, name, with_fields(plan.groups[name], ranks=Ranks(ranks)))
    assert bound_by(plan) == "busiest_rank"


def test_groups_that_no_step_uses_change_nothing():
    plan = PLANS["sequence_groups/demo"]
    group = next(iter(plan.groups.values()))
    wide = with_group(plan, "spare", with_fields(group, split={"ring": len(group.ranks)}))
    assert bound_by(wide) != "busiest_rank"


def test_a_share_of_devices_is_not():
    """It takes longer, and less of its devices."""
    plan = PLANS["by_hand/mixed-groups"]
    (step,) = plan.steps
    first, *others = step.micro_batches
    row = {name: SharedDeviceItems(items=items, share=0.5) for name, items in first.items()}
    shared = with_fields(plan, steps=(with_fields(step, micro_batches=({"llm": row}, *others)),))
    assert bound_by(shared) == "busiest_rank"
    assert score(shared).step_seconds > score(plan).step_seconds


def test_offloading_what_a_rank_holds_is_not():
    """The shortest item is offloaded by a little, which hides and takes no time."""
    plan = PLANS["data_ranks/offload-h200x8"]
    sizes = plan.uses.items["llm"]
    short = min(sizes, key=lambda item: (sizes[item], item))
    rows = tuple(
        {
            name: tuple(OffloadedItem(item=e, offload=0.001) if e == short else e for e in entries)
            for name, entries in row.items()
        }
        for row in plan.steps[0].micro_batches
    )
    helped = with_fields(plan, steps=(with_fields(plan.steps[0], micro_batches=rows),))
    assert bound_by(helped) == "busiest_rank"
    assert standard_groups(helped, 0, "llm")
