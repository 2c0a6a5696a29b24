"""Laws of one layout: what it says of replicas, of experts, of gradients and of recomputation is of what there is."""

import pytest

from planner import files
from planner.plan.legal import violations
from planner.plan.model import Layout, Plan
from planner.plan.words import layout_text
from planner.specs.base import Ranks, changed
from planner.specs.parts import Experts
from tests.plans import decoder, sharded_plan, staged_plan

SHARDED = sharded_plan(4, [[(0, 2), (2, 2)], [(0, 4)]])
STAGED = staged_plan(2, 3)  # four layers, no replicas
MOE = changed(decoder(), moe=Experts(experts=4, topk=2, ffn=32))


def layout(plan: Plan, module=None, **fields) -> Plan:
    plan = changed(plan, layouts={"llm": changed(plan.layouts["llm"], **fields)})
    return changed(plan, uses=changed(plan.uses, models={"llm": module})) if module else plan


@pytest.mark.parametrize(
    ("plan", "where", "message"),
    [
        (layout(SHARDED, mesh={"copies": 2, "dp": 2}), "", "no dim of a mesh is called `copies`"),
        (layout(SHARDED, mesh={"replica": 3, "dp": 2}), "", "the mesh holds 6 ranks, the layout has 4"),
        (layout(SHARDED, recompute={"0-4": "full"}), ".recompute", "layer 4 does not exist, there are 4"),
        (layout(SHARDED, recompute={"0-2": "full", 2: "none"}), ".recompute", "layer 2 is in 2 of the ranges"),
        (layout(SHARDED, recompute={"2-1": "full"}), ".recompute", "the indices in `2-1` do not rise"),
        (layout(SHARDED, recompute={"first": "full"}), ".recompute", "`first` is no set of indices"),
        (layout(SHARDED, dispatch="all_gather"), "", "the module has none"),
        (layout(STAGED, gradients="bf16"), "", "every rank has parameters of its own"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_a_broken_law_is_found(plan, where, message):
    found = violations(plan)
    assert any(v.where == f"layouts.llm{where}" and message in v.message and v.fix for v in found), found


@pytest.mark.parametrize(
    "plan",
    [
        layout(SHARDED, mesh={"replica": 2, "dp": 2}),
        layout(SHARDED, mesh={"dp": 2, "replica": 2}, gradients="bf16"),
        layout(SHARDED, mesh={"replica": 4}),
        layout(SHARDED, recompute={"0,2": "full", 3: "selective"}),
        layout(SHARDED, recompute={}),
        layout(SHARDED, MOE, experts={"ep": 4}, dispatch="all_gather"),
    ],
    ids=["replicas", "gradients", "only replicas", "recompute", "nothing said", "dispatch"],
)
def test_what_a_plan_can_say(plan):
    assert violations(plan) == []
    assert files.parse(files.dump(plan), Plan, "again") == plan


def test_gradients_of_experts_that_the_ranks_of_tp_share_are_summed():
    """Of one data-parallel rank: the dense part is split, the experts have a copy on each."""
    alone = changed(staged_plan(1, 1), steps=(changed(SHARDED.steps[0], sync="step"),))
    spread = {"ranks": Ranks(range(4)), "mesh": {"tp": 4}, "zero": 0, "gradients": "bf16"}
    plan = changed(SHARDED, steps=alone.steps)
    messages = [
        [v.message for v in violations(layout(plan, MOE, **spread, experts=experts)) if "gradients" in v.message]
        for experts in ({}, {"ep": 2}, {"ep": 4}, {"ep": 2, "etp": 2})
    ]
    assert [len(each) for each in messages] == [0, 0, 1, 1]


def test_layers_that_are_made_again_cannot_have_their_backward_in_two():
    parted = layout(staged_plan(2, 3, "zb_h1"), recompute={0: "full"})
    assert any("recompute full 0 makes activations again in I" in v.message for v in violations(parted))
    assert violations(layout(parted, recompute={"0-3": "none"})) == []


def test_what_each_layer_makes_again():
    said = Layout(ranks=Ranks((0,)), mesh={}, recompute={"0-1,5": "full", 3: "selective"})
    assert [said.recompute_of(layer) for layer in range(6)] == ["full", "full", "none", "selective", "none", "full"]
    assert said.recomputes(range(6)) == {"full": 3, "none": 2, "selective": 1}
    assert changed(said, recompute="full").recomputes(range(2, 4)) == {"full": 2}


def test_a_layout_in_words():
    said = Layout(ranks=Ranks(range(8)), mesh={"replica": 2, "dp": 4}, zero=1)
    assert layout_text(said) == "dp 4 · replica 2 · zero 1 · recompute none · bf16"
    more = changed(said, recompute={"0-3": "full", 9: "selective"}, gradients="bf16", dispatch="all_gather")
    words = "recompute full 0-3, selective 9 · bf16 · gradients bf16 · dispatch all_gather"
    assert layout_text(more) == f"dp 4 · replica 2 · zero 1 · {words}"
