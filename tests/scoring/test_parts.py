"""An item of several parts is worth what items of these sizes are, together on the same ranks."""

from pathlib import Path

import pytest

from planner import files
from planner.plan.plan_file import Plan, Prices
from planner.scoring.plan_answer import plan_answer
from planner.scoring.score import score
from planner.scoring.work_at_peak import module_flops
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.hardware.profile import Profile
from planner.specs.workload.items import ItemSize

BUBBLES = files.read(Path(__file__).parents[1] / "golden/by_hand/encoder-in-bubbles/plan.yaml", Plan)


def with_images(plan: Plan, sizes: dict, feeds: dict[int, int], row: tuple[int, ...]) -> Plan:
    """`row`: images of the first micro-batch on v0."""
    first, *others = plan.steps[0].micro_batches
    rows = ({**first, "vit": {"v0": row}}, *others)
    items = {**plan.uses.items, "vit": sizes}
    facts = with_fields(plan.uses, items=items, feeds={"vit": feeds})
    return with_fields(plan, steps=(with_fields(plan.steps[0], micro_batches=rows),), uses=facts)


def by_rates(plan: Plan) -> Plan:
    """Priced by the shapes of its modules, on a device whose kernels somebody timed."""
    h200, _ = library.read_named("h200", Profile)
    return with_fields(plan, uses=with_fields(plan.uses, prices=Prices(profile="h200", rates={"h200": h200.rates})))


PLANS = pytest.mark.parametrize("plan", [BUBBLES, by_rates(BUBBLES)], ids=["by module", "by rates"])


@PLANS
@pytest.mark.every(2)
def test_one_part_is_a_bare_number(plan):
    sizes = plan.uses.items["vit"]
    said = {item: ItemSize(patches=(size,)) if item % 2 else ItemSize(patches=size) for item, size in sizes.items()}
    same = with_fields(plan, uses=with_fields(plan.uses, items={**plan.uses.items, "vit": said}))
    assert score(same).timeline == score(plan).timeline
    assert score(same).memory == score(plan).memory
    assert plan_answer(same, [score(same)]) == plan_answer(plan, [score(plan)])


@PLANS
def test_two_parts_are_two_items(plan):
    together = with_images(plan, {0: ItemSize(patches=(4096, 1024)), 2: 8192}, {0: 0, 2: 3}, (0,))
    apart = with_images(plan, {0: 4096, 1: 1024, 2: 8192}, {0: 0, 1: 0, 2: 3}, (0, 1))
    one = with_images(plan, {0: 5120, 2: 8192}, {0: 0, 2: 3}, (0,))
    found, want, whole = (score(each) for each in (together, apart, one))
    assert found.timeline == want.timeline and found.memory.peaks == want.memory.peaks
    joined, split, whole_flops = (module_flops(each, [0])["vit"] for each in (together, apart, one))
    assert found.step_seconds < whole.step_seconds and joined == split < whole_flops
