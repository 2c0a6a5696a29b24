"""What `planner export` and `planner import` print, and their JSON answers."""

from pathlib import Path
from typing import Any

from planner.export import ExportedPlan
from planner.plan.plan_file import Plan
from planner.scoring import objective_of, objective_value


def export_summary(exported: ExportedPlan, to: str, out: Path) -> dict[str, Any]:
    return {"form": to, "file": str(out), "micro_batches": [*exported.micro_batches], "note": exported.note}


def export_lines(exported: ExportedPlan, out: Path) -> list[str]:
    lines = [f"{exported.what} written to {out}"]
    if [*exported.micro_batches] != sorted(exported.micro_batches):
        numbers = ", ".join(map(str, exported.micro_batches))
        lines.append(f"its micro-batches 0, 1, … are the plan's {numbers}: the order in which the last stage runs them")
    return lines


def import_summary(before: float, plan: Plan, out: Path) -> dict[str, Any]:
    """The JSON answer for an imported schedule; `before`: seconds of a step with the plan's own order."""
    return {
        "plan": str(out),
        "strategy": plan.made.strategy,
        "objective": plan.outcome.objective,
        "unit": objective_of(plan).unit,
        "value": plan.outcome.value,
        "before": objective_value(plan, before, range(len(plan.steps))),
        "bound": plan.outcome.bound,
        "peak_memory_gib": plan.prediction.peak_memory_gib,
    }


def import_lines(before: float, plan: Plan, out: Path) -> list[str]:
    """Lines for an imported schedule; `before`: simulated seconds of a step with the plan's own order."""
    after = plan.prediction.step_seconds
    lines = [f"plan written to {out}"]
    lines.append(f"step {after:.4g} s with this order, {before:.4g} s before (simulated)")
    lines.append(f"fullest rank {plan.prediction.peak_memory_gib:.3g} GiB (simulated)")
    return lines
