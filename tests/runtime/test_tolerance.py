"""How far a run may be from one process follows from its least precise numbers."""

import math

import pytest

from planner.runtime.result import Verified
from planner.runtime.tolerance import BOUNDS, Bound, bound, unlike, within
from planner.specs.base import changed
from planner.specs.parts import Experts
from tests.plans import encoder_plan, staged_plan

PLAN = staged_plan(1, 1)


def found(loss=0.0, gradient=0.0, worst="llm.norm.weight"):
    return Verified(steps=1, items=1, loss_rel_err=loss, grad_rel_err=gradient, worst=worst)


def with_layout(plan=PLAN, **layout):
    return changed(plan, layouts={**plan.layouts, "llm": changed(plan.layouts["llm"], **layout)})


def test_the_run_s_dtype_counts_then_the_plan_s():
    for dtype, want in BOUNDS.items():
        assert bound(with_layout(dtype=dtype)) == want == bound(PLAN, dtype)


def test_gradients_exchanged_in_bf16_are_as_precise_as_bf16():
    assert bound(with_layout(dtype="float64", gradients="bf16")) == BOUNDS["bf16"]


def test_of_several_modules_the_least_precise_counts():
    plan = with_layout(encoder_plan(), dtype="float64")
    mixed = changed(plan, layouts={**plan.layouts, "vit": changed(plan.layouts["vit"], dtype="float32")})
    assert bound(mixed) == BOUNDS["float32"]


def test_experts_in_bf16_promise_the_loss_alone():
    spec = changed(PLAN.uses.models["llm"], moe=Experts(experts=4, topk=1, ffn=8))
    plan = changed(PLAN, uses=changed(PLAN.uses, models={"llm": spec}))
    assert bound(plan, "bf16") == Bound(1e-2, None) and bound(plan, "float32") == BOUNDS["float32"]
    assert within(found(1e-3, 0.9), bound(plan, "bf16")) and not within(found(0.1), bound(plan, "bf16"))


@pytest.mark.parametrize("dtype", BOUNDS)
def test_each_of_the_two_can_be_beyond(dtype):
    allowed = BOUNDS[dtype]
    assert within(found(allowed.loss, allowed.gradient), allowed)
    for wrong in (
        found(2 * allowed.loss),
        found(0.0, 2 * allowed.gradient),
        found(math.inf),
        found(0.0, math.inf),
    ):
        assert not within(wrong, allowed)
        error = unlike(wrong, allowed)
        assert error.exit_code == 5 and error.where == "llm.norm.weight" and "differs" in error.message


def test_forwards_alone_have_no_gradients_to_differ():
    assert within(found(0.0, 0.0, ""), BOUNDS["float64"])
