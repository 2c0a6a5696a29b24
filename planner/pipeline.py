"""The product on one page: a job becomes a plan, a plan a timeline or a run, two plans a verdict.

job → Inputs → strategy → Plan → verify → simulate → Timeline
                                   ├→ run → measured Timeline, predicted beside measured
                                   └→ check → findings
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from planner import deciding, files, online
from planner.check import Finding, Tolerances, check_folder, compare
from planner.costs.objective import find_objective
from planner.deciding import SolvedJob
from planner.errors import InputError
from planner.export import ExportedOrder, import_order_into, export_plan
from planner.ledger import KindSeconds, StepOverlay, MeasuredTask, PeakMemoryUse, seconds_by_kind, measured_timeline, overlay_steps, peak_memory_use
from planner.plan.expand import expand
from planner.plan.legal import require_legal
from planner.plan.model import Plan
from planner.simulate import Timeline, TracedStep, build_trace
from planner.simulate import write_trace as write_to
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import Inputs, JobOptions, load_job
from planner.specs.library import is_file
from planner.specs.overlap import AS_PRICED, Overlap
from planner.strategies import is_static, strategy_called
from planner.strategies.static.fitting import MemoryFit, memory_fit_of_job
from planner.strategies.static.fitting import memory_fit_of_plan as fitting_plan
from planner.strategies.static.predicted import StaticPrediction, predict_job
from planner.strategies.static.predicted import predict_plan as predicted_plan
from planner.strategies.static.together import unsupported_together
from planner.verify.score import Score, require_memory, score
from planner.why import StaticPlan, WhyGroup, WhyItem, WhyNot, WhyPlan, why_group, why_item, why_plan
from planner.why import best_static_degree as best_static
from planner.why import why_not as against

if TYPE_CHECKING:
    from planner.runtime import ParityTolerance, StopReason, PlanningTime, Progress, RunOptions, ParityErrors

OnProgress = Callable[[int, int, str], None]  # done, of how many, what
DEFAULTS = JobOptions()
TRACED_STEPS = 16  # that a trace file holds at most


def unheard(done: int, of: int, what: str) -> None:
    """For those who do not listen."""


def solve(job: str, options: JobOptions = DEFAULTS, on_batch: OnProgress = unheard) -> SolvedJob:
    """The plan of a job, verified. Raises InputError and Infeasible."""
    return decide(load_job(job, options), on_batch)


def decide(inputs: Inputs, on_batch: OnProgress = unheard) -> SolvedJob:
    """Decide, and trust nothing until it is verified."""
    solved = deciding.solve_job(inputs, on_batch)
    plan = online.with_group_catalogue(solved.plan, inputs) if inputs.job.per_batch else solved.plan
    require_legal(plan, inputs.job.name)
    return replace(solved, plan=plan)


def read_plan(path: str | Path) -> Plan:
    """A plan file, legal and worth what it says, or refused."""
    plan = files.read(path, Plan)
    require_legal(plan, str(path))
    find_objective(plan.outcome.objective, f"{path} (outcome.objective)")
    return plan


def verify(plan: Plan) -> list[Score]:
    """Legal, and within the memory of its devices; what each step is worth. Raises InputError and Infeasible."""
    require_legal(plan, plan.name)
    scores = simulate(plan)
    for each in scores:
        require_memory(plan, each)
    return scores


def simulate(plan: Plan, overlap: Overlap = AS_PRICED) -> list[Score]:
    """Every step of a plan, expanded, priced and simulated; `overlap`: other exchanges beside compute than it has."""
    return [score(plan, number, overlap) for number in range(len(plan.steps))]


def overlay(plan: Plan, scores: Sequence[Score], measured: Path) -> tuple[StepOverlay, ...]:
    """What a run of this plan measured, beside its simulation. Raises InputError when it was another plan's run."""
    simulated = [(score.timeline, expand(plan, number)) for number, score in enumerate(scores)]
    return overlay_steps(simulated, measured, plan.name, plan.size)


def write_trace(
    path: Path, plan: Plan, scores: Sequence[Score], beside: Sequence[StepOverlay] = (), only: Ranks | None = None
) -> int:
    """The first simulated steps for Perfetto, beside what was measured of them; `only`: of these ranks.

    Returns how many ranks are drawn: of very many, one of each kind.
    """
    steps = [TracedStep(s.timeline, s.tasks, "simulated", s.memory, number) for number, s in enumerate(scores)]
    sides = [[steps[each.step], each.traced] for each in beside] or [[step] for step in steps]
    trace = build_trace(sides[:TRACED_STEPS], plan.name, only)
    write_to(path, trace)
    return len(trace["otherData"].get("stands_for", range(plan.size)))


def export(plan: Plan, to: str) -> ExportedOrder:
    """A plan, or what it decides, as another program reads it. Raises InputError when that cannot say it."""
    return export_plan(plan, to)


def import_order(form: str, path: Path, plan: Plan) -> Plan:
    """A plan with the order that another program's file says, verified. Raises InputError and Infeasible."""
    return import_order_into(form, path, plan)


# -------------------------------------------------------------------------------------------------- static layouts


def predict(reference: str, options: JobOptions = DEFAULTS) -> StaticPrediction:
    """Seconds, their parts and memory of a plan, or of the layout that a job fixes. Raises InputError."""
    plan = plan_at(reference)
    return predicted_plan(plan, tuple(simulate(plan))) if plan else predict_job(static_inputs(reference, options))


def fits(reference: str, options: JobOptions = DEFAULTS) -> MemoryFit:
    """Whether a plan, or the layout that a job fixes, fits into memory, and what would. Raises InputError."""
    plan = plan_at(reference)
    return fitting_plan(plan, tuple(simulate(plan))) if plan else memory_fit_of_job(static_inputs(reference, options))


def plan_at(reference: str) -> Plan | None:
    """The plan that a path leads to; None where it is no plan's, or no path. Raises InputError where it is illegal."""
    path = Path(reference)
    if not is_file(path) or files.format_of(path) != Plan.FORMAT:
        return None
    return read_plan(path)


def static_inputs(job: str, options: JobOptions) -> Inputs:
    """A job that one static layout can be of; or of several modules, one of each."""
    inputs = load_job(job, options)
    deciding.require_objective(inputs)
    of_several = len(inputs.model.modules) > 1
    reason = unsupported_together(inputs) if of_several else strategy_called("parallel_search").supports(inputs)
    if reason:
        message, _, fix = reason.replace("parallel_search", "a static layout").partition(" | ")
        raise InputError(message, where=job, fix=fix or "another job")
    return inputs


# ------------------------------------------------------------------------------------------------------------ why


def resolve(inputs: Inputs) -> Plan:
    """The plan of a problem, for those who ask what another one would give."""
    return decide(inputs).plan


def why(plan: Plan, what: str | None = None, step: int = 0) -> WhyPlan | WhyItem | WhyGroup:
    """Why an item (a number) or a group (a name) is as it is; without one, what would make the step shorter."""
    if what is None:
        return why_plan(plan, step, resolve)
    if what.isdecimal() and len(what) < 10:
        return why_item(plan, step, int(what), resolve)
    return why_group(plan, step, what)


def why_not(plan: Plan, changes: tuple[str, ...], step: int = 0) -> WhyNot:
    """What `KEY=VALUE` changes of a plan's own problem would cost, and why."""
    return against(plan, step, changes, resolve)


def static(job: str, options: JobOptions = DEFAULTS, on_degree: OnProgress = unheard) -> StaticPlan:
    """The best plan of a job with one degree for all batches, beside planning each batch by itself."""
    inputs = load_job(job, options)
    if is_static(inputs.job.strategy):
        message = f"the strategy {inputs.job.strategy} gives one layout for all batches already"
        fix = "leave --static out"
        raise InputError(message, where=f"{job} (strategy)", fix=fix)
    return best_static(inputs, resolve, on_degree)


# ------------------------------------------------------------------------------------------------------------ run


def require_torch(verb: str) -> None:
    """Raises InputError when torch is not installed."""
    if find_spec("torch") is None:
        raise InputError(
            f"{verb} needs torch, which is not installed", where=sys.prefix, fix="pip install 'planner[torch]'"
        )


@dataclass(frozen=True, slots=True)
class Ran:
    """A run of a plan: what was measured, beside what was predicted."""

    plan: Plan
    machine: str
    losses: tuple[float, ...]  # per step, per token
    tokens_per_second: float
    step_seconds: float  # median
    predicted_step_seconds: float | None  # None: the plan has no prices
    kinds: list[KindSeconds]  # of the measured steps
    timelines: tuple[Timeline, ...]  # one per measured step: the last ones
    traced: tuple[TracedStep, ...]  # the same with their tasks
    planned: "tuple[PlanningTime, ...]"  # the steps that were planned while it lasted
    verified: "ParityErrors | None"
    peak_bytes: int | None = None  # of tensors on the fullest rank; None: not counted, as on the CPU
    ended: "StopReason" = "steps"  # why it was over
    bound: "ParityTolerance | None" = None  # of what was verified
    memory: tuple[PeakMemoryUse, ...] = ()  # by rank; none where torch does not count it: on the CPU
    before: int = 0  # steps of the checkpoint with which it went on


def run(plan: Plan, options: "RunOptions", on_progress: "Callable[[Progress], None]", job: str | None = None) -> Ran:
    """Launch a plan on this machine; `job`: where its job is, if steps are planned meanwhile and it is not beside it.

    Raises RunFailed naming the rank, InputError when it cannot run here.
    """
    from planner.runtime import parity_tolerance, require_quick_checks, resolve_resume
    from planner.runtime import run as launch

    options = resolve_resume(options)
    require_quick_checks(plan, options)
    scores = verify(plan) if plan.uses.prices.has_prices else []
    with online.run_planner(plan, options.steps_folder(plan), options.step_count(plan), options.base, job):
        result = launch(plan, options, on_progress)
    predicted, traced, memory = [], [], []
    trained = online.trained_steps(plan, options.steps_folder(plan), len(result.steps), result.steps_before)
    for at, (step, (whole, number)) in enumerate(zip(result.steps, trained, strict=True), result.steps_before):
        expected = (scores[number] if whole is plan else score(whole)) if scores else None
        if expected:
            predicted.append(expected.timeline)
        if not step.measured:  # long ago: only the last ones are kept
            continue
        memory.append((step.memory, expected))
        records = [MeasuredTask(m.id, m.rank, m.start, m.end, m.comm) for m in step.measured]
        done = expand(whole, number)  # of all groups, alike or not
        timeline = measured_timeline(records, done, plan.size, step.seconds)
        of_plan = number if whole is plan else at  # steps that were planned meanwhile are beyond the plan's own
        traced.append(TracedStep(timeline, done, "measured", None, of_plan, at))
    return Ran(
        plan=plan,
        machine=result.machine,
        losses=tuple(step.loss for step in result.steps),
        tokens_per_second=sum(step.tokens for step in result.steps) / sum(step.seconds for step in result.steps),
        step_seconds=median(step.seconds for step in result.steps),
        predicted_step_seconds=median(t.step_seconds for t in predicted) if predicted else None,
        kinds=seconds_by_kind(predicted[len(predicted) - len(traced) :], [step.timeline for step in traced]),
        timelines=tuple(step.timeline for step in traced),
        traced=tuple(traced),
        planned=tuple(step.planning for step in result.steps if step.planning),
        verified=result.verify,
        peak_bytes=max((peak for step in result.steps for peak in step.peak_bytes if peak), default=None),
        ended=result.stop_reason,
        bound=parity_tolerance(plan, options.dtype) if result.verify else None,
        memory=peak_memory_use(plan, memory),
        before=result.steps_before,
    )


def write_measured_trace(path: Path, ran: Ran) -> None:
    """The last measured steps, in the format of the simulated ones; `simulate --measured` reads them."""
    write_to(path, build_trace([[step] for step in ran.traced[-TRACED_STEPS:]], ran.plan.name))


# ---------------------------------------------------------------------------------------------------------- check


def check(old: Path, new: Path | None, tolerances: Tolerances, on_case: OnProgress = unheard) -> list[Finding]:
    """What changed from one plan file to another; or, of a folder of cases, to what their jobs give today."""
    if new is None:
        return check_folder(old, solve_again, tolerances, on_case)
    return compare(files.read(old, Plan), files.read(new, Plan), tolerances)


def solve_again(job: Path, plan: Plan) -> Plan:
    """The plan of a job, made the way another one was; from the same file of lengths, if it is still there."""
    made, lengths = plan.made, plan.uses.sources.get("lengths")
    path = job.parent / lengths.path if lengths else None
    given = str(path) if path and path.is_file() else None
    inputs = load_job(str(job), JobOptions(made.batches, made.first_row, made.seed, made.effort, given))
    named = made.strategy if inputs.job.strategy != deciding.BEST else deciding.BEST
    return decide(replace(inputs, job=with_fields(inputs.job, strategy=named))).plan
