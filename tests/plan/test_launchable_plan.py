"""What steps decide beside layouts, judged by knobs: each rule alone, and what it leaves."""

import pytest

from planner.plan.launchable.launch_refusals import STEP_RULES, plan_refusals
from planner.plan.plan_file import OffloadedItem, TaskPlacement
from planner.plan.schedules import schedule_slots
from planner.plan.schedules.explicit import slot_lines
from planner.specs.base import with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.software import Framework
from planner.strategies.sharing import with_shares
from tests.plans import encoder_plan, sharded_plan, staged_plan, timed

MIXED = sharded_plan(4, [[(0, 2), (2, 1), (3, 1)], [(0, 4)]])
WIDE = sharded_plan(4, [[(0, 4)], [(0, 4)]])  # the same groups always, and others than those of the layout
ALONE = sharded_plan(2, [[(0, 1), (1, 1)], [(0, 1), (1, 1)]])
STAGED = staged_plan(2, 3)


def refusals(plan, **knobs):
    judged = with_fields(plan, uses=with_fields(plan.uses, software=Framework(name="ours", knobs=Knobs(**knobs))))
    return [refusal for _, refusal in plan_refusals(judged)]


def step(plan, **fields):
    return with_fields(plan, steps=(with_fields(plan.steps[0], **fields),))


def packed(plan):
    """All items of the first micro-batch on its first group."""
    group, *_ = plan.steps[0].micro_batches[0]
    return step(plan, micro_batches=({group: tuple(plan.uses.items["llm"])},))


def ordered(name, micro_batches=3):
    return step(STAGED, order={"llm": slot_lines(schedule_slots(name, 2, micro_batches))})


ODD = step(STAGED, order={"llm": ("F0 F1 F2 B0 B1 B2", "F0 F1 B0 F2 B1 B2")})
PLACED = encoder_plan((TaskPlacement(do="vit.F0", on="v0", before="llm.F0@0"),))
BESIDE = timed(encoder_plan(), "vit", ahead=1)
SHARED = with_shares(encoder_plan(), {"vit": 0.5, "llm": 0.5})
OFFLOADED = step(ALONE, micro_batches=({next(iter(ALONE.groups)): (OffloadedItem(item=0, offload=0.5),)},))


@pytest.mark.parametrize(
    ("rule", "plan", "knobs"),
    [
        ("groups", MIXED, {"groups": "layout"}),
        ("groups", WIDE, {"groups": "layout"}),
        ("packing", packed(ALONE), {"packing": "equal"}),
        ("order of passes", ODD, {"orders": "named"}),
        ("order of passes", ordered("zb_h1"), {"orders": "named", "schedules": ()}),
        ("order of passes", PLACED, {"orders": "named"}),
        ("encoders ahead", BESIDE, {"orders": "named", "ahead": 1}),
        ("shares of devices", SHARED, {"orders": "named"}),
        ("offload", OFFLOADED, {"offload": "none"}),
    ],
)  # fmt: skip
def test_a_rule_refuses_and_turned_off_does_not(rule, plan, knobs):
    found = refusals(plan, **knobs)
    assert {each.rule for each in found} == {rule} and all(each.message and each.fix for each in found)
    assert refusals(plan) == []


@pytest.mark.parametrize(
    "plan", [ALONE, STAGED, ordered("1f1b"), ordered("gpipe"), step(STAGED, order={"llm": "gpipe"})]
)
def test_what_a_layout_says_is_left(plan):
    knobs = {"groups": "layout", "packing": "equal", "orders": "named", "schedules": ("gpipe",)}
    assert refusals(plan, **knobs) == []


def test_rules_about_the_batch_hold_for_equal_sequences():
    """Three sequences of the same length on two ranks; of other lengths the framework packs or pads them."""
    (first, second), *_ = [tuple(ALONE.groups)]
    three = step(ALONE, micro_batches=({first: (0,), second: (1,)}, {first: (2,)}))
    sizes = {0: 16, 1: 16, 2: 16}
    equal = with_fields(three, uses=with_fields(three.uses, items={"llm": sizes}))
    assert [each.rule for each in refusals(equal, even_batch=True)] == ["even batch"]
    unequal = with_fields(three, uses=with_fields(three.uses, items={"llm": {**sizes, 2: 20}}))
    assert refusals(unequal, even_batch=True) == []


def test_every_rule_is_tried():
    assert [rule.name for rule in STEP_RULES] == [
        "groups",
        "packing",
        "shares of replicas",
        "order of passes",
        "encoders ahead",
        "shares of devices",
    ]
