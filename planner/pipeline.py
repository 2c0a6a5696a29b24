"""The product on one page: a job becomes a plan, a plan a timeline or a run, two plans a verdict.

job → Inputs → strategy → Plan → verify → simulate → Timeline
                                   ├→ run → measured Timeline, predicted beside measured
                                   └→ check → findings

These functions are the API. What joins them with files and pages stands in `planner.workflows`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from planner import files, online, pools, serving
from planner import why as reasons
from planner.callbacks import OnProgress, silent
from planner.check import (
    CheckedCase,
    Finding,
    Solving,
    Tolerances,
    all_findings,
    check_folder,
    compare,
    update_folder,
)
from planner.errors import InputError
from planner.ledger import ComparedRun, SlowRankWatch, compare_run
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.scoring import Score, require_memory, score, scored_at, task_seconds, with_bound_digest, with_loader
from planner.scoring import read_plan as read_plan
from planner.scoring import read_scored as read_scored
from planner.solve_job import (
    answer_for,
    inputs_of_mixes,
    per_batch_inputs,
    read_job,
    require_launchable_plan,
    require_objective,
    solve_job,
    static_inputs,
    with_asked,
)
from planner.specs.framework.overlap import AS_PRICED, Overlap
from planner.specs.inputs import Inputs, JobOptions
from planner.strategies import SolvedJob
from planner.strategies import static as layouts

if TYPE_CHECKING:
    from planner.runtime import LocalDevices, Progress, RunOptions

DEFAULTS = JobOptions()


def solve(job: str, options: JobOptions = DEFAULTS, on_batch: OnProgress = silent) -> SolvedJob:
    """The plan of a job, found legal. Raises InputError and Infeasible."""
    return decide(read_job(job, options), on_batch)


def decide(inputs: Inputs, on_batch: OnProgress = silent) -> SolvedJob:
    """The plan of a job that is read already: of a run, on the best choice. Raises InputError and Infeasible."""
    if inputs.job.run:
        return chosen_of(inputs, on_batch).solved
    with answer_for(inputs):
        solved = solve_job(inputs, on_batch)
    plan = online.with_group_catalogue(solved.plan, inputs) if inputs.job.per_batch else solved.plan
    require_legal(plan, inputs.job.name)
    plan = with_loader(plan, inputs.loader)
    return SolvedJob(with_bound_digest(with_asked(plan, inputs.job)), solved.step_seconds)


def choose(job: str, options: JobOptions = DEFAULTS, on_offer: OnProgress = silent) -> pools.PoolAnswer:
    """Which GPUs of a pool a run gets, how many and for how much, and the front of time and money.

    Raises InputError and Infeasible.
    """
    inputs = read_job(job, options)
    if not inputs.job.run:
        raise InputError("the job is of one step", where=str(inputs.file), fix="run: {tokens: 1e12}")
    return chosen_of(inputs, on_offer, whole_front=True)


def chosen_of(inputs: Inputs, on_offer: OnProgress, whole_front: bool = False) -> pools.PoolAnswer:
    """The same of a job that is read already, as far as its plan needs it."""
    require_objective(inputs)
    return pools.choose(inputs, decide, on_offer, whole_front)


def serve(job: str, asked: serving.Asked, on_split: OnProgress = silent) -> serving.ServingAnswer:
    """How a cluster is shared among the stages of a job's model that is served."""
    return serving.answer(serving.served_inputs(job, asked), asked, on_split)


def plan_of(inputs: Inputs) -> Plan:
    """The plan alone, for those who ask what a changed job would give."""
    return decide(inputs).plan


def verify(plan: Plan) -> list[Score]:
    """The scores of a plan that is legal and within the memory of its devices. Raises InputError and Infeasible."""
    require_legal(plan, plan.name)
    scores = simulate(plan)
    for each in scores:
        require_memory(plan, each)
    return scores


def simulate(plan: Plan, overlap: Overlap = AS_PRICED) -> list[Score]:
    """Every step of a plan, expanded, priced and simulated; `overlap` switches which exchanges run beside compute."""
    return [score(plan, number, overlap) for number in range(len(plan.steps))]


def run(
    plan: Plan,
    options: "RunOptions",
    on_step: "Callable[[Progress], None]",
    job: str | None = None,
    devices: "LocalDevices | None" = None,
) -> ComparedRun:
    """Train with a plan on this machine; `job`: the job that further steps are planned from, if not beside the plan;
    `devices`: None for the first ones of this machine.

    Raises RunFailed naming the rank, and InputError where the plan cannot run here.
    """
    from planner import runtime

    options = runtime.resolve_resume(options)
    runtime.require_quick_checks(plan, options)
    scores = verify(plan) if plan.uses.prices.has_prices else []
    with online.run_planner(plan, options.steps_folder(plan), options.step_count(plan), options.base, job):
        hear = SlowRankWatch([each.timeline for each in scores]).hearing(on_step)
        result = runtime.run(plan, options, hear, task_seconds(scores), devices)
    followed = online.trained_steps(plan, options.steps_folder(plan), len(result.steps), result.steps_before)
    tolerance = runtime.parity_tolerance(plan, options.dtype) if result.verify else None
    return compare_run(plan, scores, result, followed, tolerance)


def predict(reference: str, options: JobOptions = DEFAULTS) -> layouts.StepTimePrediction:
    """Seconds, their parts and memory of a plan, or of the layout that a job fixes. Raises InputError."""
    if scored := scored_at(reference):
        return layouts.predict_plan(*scored)
    inputs = static_inputs(reference, options)
    with answer_for(inputs):
        return layouts.predict_job(inputs)


def fits(reference: str, options: JobOptions = DEFAULTS) -> layouts.MemoryFit:
    """Whether a plan, or the layout that a job fixes, fits into memory, and what would. Raises InputError."""
    if scored := scored_at(reference):
        return layouts.memory_fit_of_plan(*scored)
    inputs = static_inputs(reference, options)
    with answer_for(inputs):
        return layouts.memory_fit_of_job(inputs)


def why(plan: Plan, what: str | None = None, step: int = 0) -> reasons.WhyAnswer:
    """Why an item (a number), a group or an embedding table (a name) is as it is; without one, what would make the step
    shorter.
    """
    return reasons.why(plan, step, what, plan_of)


def why_not(plan: Plan, changes: tuple[str, ...], step: int = 0) -> reasons.WhyNot:
    """What `KEY=VALUE` changes of a plan's own problem would cost, and why."""
    return reasons.why_not(plan, step, changes, plan_of)


def static(job: str, options: JobOptions = DEFAULTS, on_degree: OnProgress = silent) -> reasons.StaticPlan:
    """The best plan of a job with one degree for all batches, beside planning each batch by itself."""
    return reasons.best_static_degree(per_batch_inputs(job, options), plan_of, on_degree)


def mixes(
    job: str, choice: reasons.MixChoice, options: JobOptions = DEFAULTS, on_mix: OnProgress = silent
) -> reasons.MixPlan:
    """The best layouts of all modules for several mixes of the data, and from when on others repay a restart. Raises
    InputError and Infeasible.
    """
    found = reasons.best_for_mixes(inputs_of_mixes(job, options), choice, options, on_mix)
    require_launchable_plan(found.plan)
    require_legal(found.plan, found.plan.name)
    return reasons.MixPlan(with_bound_digest(found.plan), found.comparison)


def check(old: Path, new: Path | None, tolerances: Tolerances, on_case: OnProgress = silent) -> list[Finding]:
    """What changed from one plan file to another; or, of a folder of cases, to what their jobs give today."""
    return all_findings(gate(old, new, tolerances, on_case))


def gate(
    old: Path, new: Path | None, tolerances: Tolerances, on_case: OnProgress = silent, verdicts: Path | None = None
) -> list[CheckedCase]:
    """The cases of a folder, or two plan files as one; `verdicts`: a folder that keeps which cases are unchanged.

    Raises InputError.
    """
    if new is None:
        return check_folder(old, Solving(plan_of, reasons.asked_inputs), tolerances, on_case, verdicts)
    plans = files.read(old, Plan), files.read(new, Plan)
    return [CheckedCase("", new, (*compare(*plans, tolerances, (str(old), str(new))),), *plans)]


def update(folder: Path, on_case: OnProgress = silent) -> list[Path]:
    """Solve every job of a folder of cases; the files of plans that are new or changed. Raises InputError and
    Infeasible.
    """
    return update_folder(folder, plan_of, on_case)


def because(before: Plan, after: Plan) -> list[str]:
    """Why the first step of a legal plan takes another time than that of another, in sentences: the largest first."""
    steps = [reasons.single_step(plan, 0) for plan in (before, after)]
    facts = [reasons.step_facts(step, score(step)) for step in steps]
    comparable = type(facts[0]) is type(facts[1])
    return [part.text for part in reasons.differing_parts(*facts)] if comparable else []
