"""Parity tolerance: how far loss and gradients may be from one process with the same weights and items, by dtype."""

from dataclasses import dataclass

from planner.errors import RunFailed
from planner.plan.plan_file import Layout, Plan
from planner.runtime.run_result import ParityErrors
from planner.specs.parallelism import Dtype


@dataclass(frozen=True, slots=True)
class ParityTolerance:
    """Relative errors that rounding alone may cause."""

    loss: float
    gradient: float | None  # ‖g - g*‖ / ‖g*‖ of the worst parameter; None: not checked


PARITY_TOLERANCES: dict[Dtype, ParityTolerance] = {
    "float64": ParityTolerance(1e-12, 1e-12),
    "float32": ParityTolerance(1e-6, 1e-5),
    "bf16": ParityTolerance(1e-2, 5e-2),
}
# Where a loss compares features, gradients are made of differences between samples: a hundredth of the features where
# weights are random. Rounding is so much larger beside them, and bf16 leaves nothing to check.
COMPARED_TOLERANCES = PARITY_TOLERANCES | {"float32": ParityTolerance(1e-6, 1e-3), "bf16": ParityTolerance(1e-2, None)}


def parity_tolerance(plan: Plan, dtype: Dtype | None = None) -> ParityTolerance:
    """Tolerance of the module with the least precise dtype; `dtype` overrides that of the plan."""
    compares = any(task.loss == "contrastive" for task in plan.uses.tasks.values())
    tolerances = COMPARED_TOLERANCES if compares else PARITY_TOLERANCES
    each = [tolerances[error_dtype(layout, dtype)] for layout in plan.layouts.values()]
    gradients = [one.gradient for one in each if one.gradient is not None]
    routes_in_bf16 = any(
        (dtype or layout.dtype) == "bf16" and plan.uses.models[name].routed_experts
        for name, layout in plan.layouts.items()
    )
    # Rounded to bf16, a token whose scores for two experts are nearly equal may be routed to the other one: gradients
    # of both experts then differ by a token, though both are right.
    gradient = None if routes_in_bf16 or len(gradients) < len(each) else max(gradients)
    return ParityTolerance(max(one.loss for one in each), gradient)


def error_dtype(layout: Layout, dtype: Dtype | None) -> Dtype:
    """The dtype whose rounding bounds a module's errors."""
    return "bf16" if layout.gradients == "bf16" else dtype or layout.dtype


def within_tolerance(found: ParityErrors, tolerance: ParityTolerance) -> bool:
    """Whether the errors are within the tolerance; an error that is not a number is infinite."""
    same_loss = found.loss_rel_err <= tolerance.loss
    return same_loss and (tolerance.gradient is None or not found.worst or found.grad_rel_err <= tolerance.gradient)


def parity_failure(found: ParityErrors, tolerance: ParityTolerance) -> RunFailed:
    """The error for a run whose parity errors exceed the tolerance."""
    gradient = "" if tolerance.gradient is None else f", a gradient {tolerance.gradient:.0e}"
    return RunFailed(
        f"training differs from one process: {parity_errors_text(found)}",
        where=found.worst,
        fix=f"rounding explains an error of {tolerance.loss:.0e} of the loss{gradient} at most; if float64 "
        "(--dtype float64) differs too, it is a bug of the runtime, please report it",
    )


def parity_errors_text(found: ParityErrors) -> str:
    """Text such as `loss to 1.0e-07, gradients to 2.0e-06 (relative), worst in llm.norm.weight`."""
    if not found.worst:
        return f"loss to {found.loss_rel_err:.1e} (relative)"
    return f"loss to {found.loss_rel_err:.1e}, gradients to {found.grad_rel_err:.1e} (relative), worst in {found.worst}"
