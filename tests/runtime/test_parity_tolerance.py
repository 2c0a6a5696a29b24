"""How far a run may be from one process follows from its least precise numbers."""

import math

import pytest

from planner.plan.plan_file import PlanTask
from planner.runtime.parity.parity_tolerance import (
    PARITY_TOLERANCES,
    ParityTolerance,
    parity_failure,
    parity_tolerance,
    within_tolerance,
)
from planner.runtime.run_result import ParityErrors
from planner.specs.base import Indices, with_fields
from planner.specs.layers.components import Experts
from tests.plans import encoder_plan, staged_plan

PLAN = staged_plan(1, 1)


def found(loss=0.0, gradient=0.0, worst="llm.norm.weight"):
    return ParityErrors(steps=1, items=1, loss_rel_err=loss, grad_rel_err=gradient, worst=worst)


def with_layout(plan=PLAN, **layout):
    return with_fields(plan, layouts={**plan.layouts, "llm": with_fields(plan.layouts["llm"], **layout)})


def test_the_run_s_dtype_counts_then_the_plan_s():
    for dtype, want in PARITY_TOLERANCES.items():
        assert parity_tolerance(with_layout(dtype=dtype)) == want == parity_tolerance(PLAN, dtype)


def test_gradients_exchanged_in_bf16_are_as_precise_as_bf16():
    assert parity_tolerance(with_layout(dtype="float64", gradients="bf16")) == PARITY_TOLERANCES["bf16"]


def test_of_several_modules_the_least_precise_counts():
    plan = with_layout(encoder_plan(), dtype="float64")
    mixed = with_fields(plan, layouts={**plan.layouts, "vit": with_fields(plan.layouts["vit"], dtype="float32")})
    assert parity_tolerance(mixed) == PARITY_TOLERANCES["float32"]


def test_experts_in_bf16_promise_the_loss_alone():
    spec = with_fields(PLAN.uses.models["llm"], moe=Experts(experts=4, topk=1, ffn=8))
    plan = with_fields(PLAN, uses=with_fields(PLAN.uses, models={"llm": spec}))
    assert (
        parity_tolerance(plan, "bf16") == ParityTolerance(1e-2, None)
        and parity_tolerance(plan, "float32") == PARITY_TOLERANCES["float32"]
    )
    assert within_tolerance(found(1e-3, 0.9), parity_tolerance(plan, "bf16")) and not within_tolerance(
        found(0.1), parity_tolerance(plan, "bf16")
    )


def test_gradients_of_compared_features_are_less_precise_but_in_float64():
    task = PlanTask(modules=("llm", "vit"), loss="contrastive", samples=Indices((0,)))
    plan = with_fields(PLAN, uses=with_fields(PLAN.uses, tasks={"pairs": task}))
    found = [parity_tolerance(plan, dtype).gradient for dtype in ("float64", "float32", "bf16")]
    assert found == [PARITY_TOLERANCES["float64"].gradient, 1e-3, None]


@pytest.mark.parametrize("dtype", PARITY_TOLERANCES)
def test_each_of_the_two_can_be_beyond(dtype):
    allowed = PARITY_TOLERANCES[dtype]
    assert within_tolerance(found(allowed.loss, allowed.gradient), allowed)
    for wrong in (
        found(2 * allowed.loss),
        found(0.0, 2 * allowed.gradient),
        found(math.inf),
        found(0.0, math.inf),
    ):
        assert not within_tolerance(wrong, allowed)
        error = parity_failure(wrong, allowed)
        assert error.exit_code == 5 and error.where == "llm.norm.weight" and "differs" in error.message


def test_forwards_alone_have_no_gradients_to_differ():
    assert within_tolerance(found(0.0, 0.0, ""), PARITY_TOLERANCES["float64"])
