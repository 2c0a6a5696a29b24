"""Plans for other programs: the file that starts one, or the best plan of those that the program can be told."""

from dataclasses import replace

from planner import pipeline
from planner import why as reasons
from planner.errors import Infeasible, InputError
from planner.export import ExportedPlan, Unsaid, export_plan
from planner.plan.descriptions import layout_text
from planner.plan.plan_file import Plan
from planner.scoring import scored_at
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions
from planner.specs.named_files import read_software
from planner.strategies import strategy_deciding
from planner.targets import TARGETS
from planner.units import percent

DEFAULTS = JobOptions()


def plan_at(reference: str) -> Plan:
    """The plan of a file, or of the layout that a job fixes, whether it fits or not. Raises InputError."""
    scored = scored_at(reference)
    return scored.plan if scored else pipeline.predict(reference, DEFAULTS).plan


def exported(reference: str, to: str, version: str = "") -> ExportedPlan:
    """A plan, or the layout that a job fixes, as another program's file. Raises InputError; where the program cannot be
    told the plan, its fix says the best that it can, and what that takes.
    """
    plan = plan_at(reference)
    try:
        return export_plan(plan, to, version)
    except Unsaid as error:
        other = best_told(plan, to)
        if other is None:
            raise
        raise InputError(error.message, where=f"{reference} ({error.where})", fix=f"{error.fix}; or {other}") from error


def best_told(plan: Plan, to: str) -> str | None:
    """The best plan of the same problem that a program can be told, as text; None where there is none, or no search of
    static layouts has the problem.
    """
    software = read_software(TARGETS[to].software)[0]
    try:
        inputs = reasons.asked_inputs(reasons.single_step(plan, 0))
        strategy = strategy_deciding("layouts", len(plan.layouts))
        job = with_fields(inputs.job, strategy=strategy, software=software.name)
        found = pipeline.plan_of(replace(inputs, job=job, software=software.framework))
        export_plan(found, to)
    except (InputError, Infeasible):
        return None
    more = found.prediction.step_seconds / plan.prediction.step_seconds - 1
    (layout,) = found.layouts.values()
    price = f"{found.prediction.step_seconds:.4g} s a step, {percent(abs(more))} {'more' if more > 0 else 'less'}"
    return f"software: {software.name} in the job, whose best is {layout_text(layout)}: {price}"
