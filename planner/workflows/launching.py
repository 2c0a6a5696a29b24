"""Plans for other programs: the file that starts one, or the best plan of those that the program can be told."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from shlex import quote
from typing import Any, get_args

from planner import pipeline
from planner import why as reasons
from planner.errors import Infeasible, InputError, PlannerError
from planner.export import ExportedPlan, Unsaid, export_plan, require_known, told_arguments
from planner.plan.descriptions import layout_text
from planner.plan.plan_file import Plan
from planner.scoring import in_memory, scored_at
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import JobOptions
from planner.specs.job import Fix
from planner.specs.named_files import read_software
from planner.specs.parallelism import Parallelism, Recompute, RecomputeName
from planner.strategies import strategy_deciding
from planner.targets import TARGETS
from planner.units import percent

DEFAULTS = JobOptions()
WHOLLY: tuple[Recompute, ...] = ("full", "none")
RECOMPUTE: tuple[Recompute, ...] = get_args(RecomputeName)


def plan_at(reference: str) -> tuple[Plan, str]:
    """The plan of a file, or of the layout that a job fixes, whether it fits or not; and what is to be said where it
    does not. Raises InputError.
    """
    scored = scored_at(reference) or pipeline.predict(reference, DEFAULTS)
    if in_memory(scored.scores):
        return scored.plan, ""
    held = f"the fullest rank would hold {scored.plan.prediction.peak_memory_gib:.3g} GiB"
    return scored.plan, f"DOES NOT FIT in memory: {held} (planner fits says which change would fit)"


def exported(reference: str, to: str, version: str = "", launcher: str = "") -> ExportedPlan:
    """A plan, or the layout that a job fixes, as another program's file. Raises InputError; where the program cannot be
    told the plan, its fix says the best that it can, and what that takes.
    """
    plan, unfit = plan_at(reference)
    try:
        return export_plan(plan, to, version, launcher, unfit)
    except InputError as error:
        asked = isinstance(error, Unsaid) and to in TARGETS
        other = best_told(plan, to, version) if asked else None
        where = error.where if error.where.startswith("--") or not error.where else f"{reference} ({error.where})"
        fix = f"{error.fix}; or {other}" if other else error.fix
        raise InputError(error.message, where=where, fix=fix) from error


def best_told(plan: Plan, to: str, version: str) -> str | None:
    """The best plan of the same problem that a program can be told, as text; None where there is none, or no search of
    static layouts has the problem.
    """
    try:
        found = best_for(plan, to, version)
        export_plan(found, to, version)
    except (InputError, Infeasible):
        return None
    named = [f"{name} {layout_text(each, plan.size)}" for name, each in found.layouts.items()]
    alone = next(iter(found.layouts.values()))
    text = layout_text(alone) if len(named) == 1 else f"of all modules alike {' and '.join(named)}"
    software = TARGETS[to].software
    return f"software: {software} in the job, whose best is {text}: {price_beside(found, plan)}"


def best_for(plan: Plan, to: str, version: str) -> Plan:
    """The best plan of a plan's problem that a program can be told, whatever layout was asked for: of one module, of
    those that recompute all layers or none, where no argument says how the best of all does; of several, of those whose
    modules are all on all ranks, with the same degrees. Raises InputError and Infeasible.
    """
    if len(plan.layouts) > 1:
        return quickest_told(plan, to, version, [alike(plan, *each) for each in product((1, 2, 4, 8), RECOMPUTE)])
    (layout,) = plan.layouts.values()
    own = Parallelism(dtype=layout.dtype, gradients=layout.gradients)
    try:
        return quickest_told(plan, to, version, [{"layout": own}])
    except Unsaid as error:
        if not error.where.endswith(".recompute"):
            raise
        return quickest_told(plan, to, version, [{"layout": with_fields(own, recompute=how)} for how in WHOLLY])


def alike(plan: Plan, tp: int, how: Recompute) -> dict[str, Any]:
    """Fields of a job whose modules are all on all ranks, with the same degrees."""
    every = Ranks(range(plan.size))
    own = Parallelism(tp=tp, cp=1, pp=1, zero=1, recompute=how, micro_batch=1, overlap=(), offload=0.0, ranks=every)
    return {"layout": Parallelism(), "fix": Fix(layouts=dict.fromkeys(plan.layouts, own))}


def quickest_told(plan: Plan, to: str, version: str, asked: Sequence[dict[str, Any]]) -> Plan:
    """The quickest plan that a program can launch, and be told, of a plan's problem with other fields of its job. Where
    there is none, raises InputError and Infeasible as the first did.
    """
    inputs, refused, found = reasons.asked_inputs(reasons.single_step(plan, 0)), list[PlannerError](), list[Plan]()
    timing = with_fields(inputs.timing, overlaps_replicas=True, gathers_ahead=True)  # that is a matter of arguments too
    timing = timing if len(plan.layouts) == 1 else inputs.timing
    framework, strategy = (
        read_software(TARGETS[to].software)[0].framework,
        strategy_deciding("layouts", len(plan.layouts)),
    )
    for fields in asked:
        job = with_fields(inputs.job, **{"strategy": strategy, "fix": Fix(), **fields})
        try:
            each = pipeline.plan_of(replace(inputs, job=job, timing=timing, software=framework))
            told_arguments(TARGETS[to], each, version)
            found.append(each)
        except (InputError, Infeasible) as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return min(found, key=lambda each: each.prediction.step_seconds)


def price_beside(found: Plan, plan: Plan) -> str:
    """Seconds of a step, and how much more or less than a plan's."""
    more = found.prediction.step_seconds / plan.prediction.step_seconds - 1
    return f"{found.prediction.step_seconds:.4g} s a step, {percent(abs(more))} {'more' if more > 0 else 'less'}"


def better(reference: str, to: str, version: str = "") -> ExportedPlan:
    """The best plan of the same problem as a change of arguments: those of the plan, or of the layout that a job fixes,
    with `-`, and those in their place with `+`. Raises InputError and Infeasible.
    """
    plan, unfit = plan_at(reference)
    require_known(to, TARGETS)
    found = best_for(plan, to, version)
    before, after = (told_arguments(TARGETS[to], each, version) for each in (plan, found))
    quicker = bool(unfit) or found.prediction.step_seconds < plan.prediction.step_seconds
    if not quicker:
        after = before
    price = price_beside(found, plan) if quicker else "none that was found is quicker"
    lines = [f"# {plan.prediction.step_seconds:.4g} s a step; {price}, simulated"]
    lines += [f"# the first {unfit}"] if unfit else []
    for argument in dict.fromkeys([*before, *after]):
        if before.get(argument) != after.get(argument):
            changed = ((sign, of.get(argument)) for sign, of in (("-", before), ("+", after)))
            lines += [" ".join((f"{sign} {argument}", *map(quote, told))) for sign, told in changed if told is not None]
        if argument not in before and TARGETS[to].idle.get(argument, argument) not in (*before, argument):
            lines[-1] += "  # if it is not there: it did nothing before"
    return ExportedPlan("change of arguments", "\n".join([*lines, ""]), ())
