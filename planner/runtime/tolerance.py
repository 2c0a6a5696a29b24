"""How far a run may be from one process with the same weights and items: by the numbers that it computes with."""

from dataclasses import dataclass

from planner.errors import RunFailed
from planner.plan.model import Layout, Plan
from planner.runtime.result import Verified
from planner.specs.parallelism import Dtype


@dataclass(frozen=True, slots=True)
class Bound:
    """Relative errors that rounding alone may give."""

    loss: float
    gradient: float | None  # of the worst parameter; None: none is promised


BOUNDS: dict[Dtype, Bound] = {
    "float64": Bound(1e-12, 1e-12),
    "float32": Bound(1e-6, 1e-5),
    "bf16": Bound(1e-2, 5e-2),
}


def bound(plan: Plan, dtype: Dtype | None = None) -> Bound:
    """Of the module with the least precise numbers; `dtype`: instead of the plan's."""
    each = [BOUNDS[numbers(layout, dtype)] for layout in plan.layouts.values()]
    choosing = any(
        (dtype or layout.dtype) == "bf16" and plan.uses.models[name].routed for name, layout in plan.layouts.items()
    )
    # Rounded to bf16, a token that is nearly torn between two experts may go to the other one: those two experts'
    # gradients then differ by a token, however right both are.
    gradient = None if choosing else max(one.gradient or 0.0 for one in each)
    return Bound(max(one.loss for one in each), gradient)


def numbers(layout: Layout, dtype: Dtype | None) -> Dtype:
    """What a module's errors are those of."""
    return "bf16" if layout.gradients == "bf16" else dtype or layout.dtype


def within(found: Verified, bound: Bound) -> bool:
    """Whether that is what rounding gives; an error that is no number is infinite."""
    same = found.loss_rel_err <= bound.loss
    return same and (bound.gradient is None or not found.worst or found.grad_rel_err <= bound.gradient)


def unlike(found: Verified, bound: Bound) -> RunFailed:
    """What to say of a run beyond its bound, once it was reported."""
    gradient = "" if bound.gradient is None else f", a gradient {bound.gradient:.0e}"
    return RunFailed(
        f"training differs from one process: {errors(found)}",
        where=found.worst,
        fix=f"rounding gives the loss {bound.loss:.0e}{gradient} at most; if float64 (--dtype float64) differs too, it "
        "is a bug of the runtime, please report it",
    )


def errors(found: Verified) -> str:
    """`loss to 1.0e-07, gradients to 2.0e-06 (relative), worst in llm.norm.weight`."""
    if not found.worst:
        return f"loss to {found.loss_rel_err:.1e} (relative)"
    return f"loss to {found.loss_rel_err:.1e}, gradients to {found.grad_rel_err:.1e} (relative), worst in {found.worst}"
