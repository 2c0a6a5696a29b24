"""Plans one batch with one effort, as the file of its step, on groups of the head plan.

Of several modules, the head's layouts leave nothing to search: samples and items are assigned to them, in smaller
micro-batches where they do not fit otherwise, and the step may be taken once it is legal and fits into memory. What it
takes is simulated later, if there is time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from planner.errors import InputError, PlannerError
from planner.online.catalogue_placement import place_on_catalogue
from planner.plan.plan_file import Asked, Plan, Step
from planner.plan.step_files import PlanHead, StepFile
from planner.scoring import require_memory_in_order, restate_in_objective, with_score
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.job import Job
from planner.specs.workload.samples import SampleBatch
from planner.strategies import strategy_called
from planner.strategies.static import AS_FIXED, drafts_of_batch, first_that_fits


def plan_step(inputs: Inputs, head: PlanHead, number: int, batch: SampleBatch) -> StepFile:
    """Plans the step of a batch, and checks it as the runtime will. Raises InputError or Infeasible naming the step."""
    sources = {"job": inputs.sources["job"]}  # the head plan has the digests of the others, which can be large files
    alone = replace(inputs, batches=(batch,), sources=sources)

    def checked(draft: Plan) -> StepFile:
        require_same_inputs(head.plan, draft)
        step_file = step_file_of(inputs, head, number, draft)
        require_memory_in_order(head.complete_plan(step_file, f"step {number}"))
        return step_file

    with naming_step(number):
        if len(head.plan.layouts) > 1:
            return first_that_fits(drafts_of_batch(alone, head.plan), checked)
        job = job_of_head(inputs.job, head.plan)
        plan = strategy_called(job.strategy).plan(replace(alone, job=job), None)
        require_same_inputs(head.plan, plan)
        plan = restate_in_objective(place_on_catalogue(head.plan, plan), inputs.job.objective)
    step_file = step_file_of(inputs, head, number, plan)
    step_file = with_fields(step_file, effort=inputs.effort, step=with_outcome(plan))
    head.complete_plan(step_file, f"step {number}")
    return step_file


def step_file_of(inputs: Inputs, head: PlanHead, number: int, plan: Plan) -> StepFile:
    """The file of the step of a plan of one batch, which nothing was computed for yet."""
    return StepFile(
        format=StepFile.FORMAT,
        head=head.digest,
        number=number,
        first_row=inputs.first_row,
        effort=0,
        step=plan.steps[0],
        dropped=plan.uses.dropped,
        left_out=plan.uses.left_out,
        feeds=plan.uses.feeds,
        items=plan.uses.items,
    )


def simulate_step(inputs: Inputs, head: PlanHead, step: StepFile) -> StepFile:
    """The step with the outcome and prediction of its simulation. Raises Infeasible naming the step."""
    with naming_step(step.number):
        plan = with_score(head.complete_plan(step, f"step {step.number}"), AS_FIXED)
        plan = restate_in_objective(plan, inputs.job.objective)
    return with_fields(step, effort=inputs.effort, step=with_outcome(plan))


def with_outcome(plan: Plan) -> Step:
    """The step of a plan of one batch, with its outcome and prediction."""
    return with_fields(plan.steps[0], outcome=plan.outcome, prediction=plan.prediction)


@contextmanager
def naming_step(number: int) -> Iterator[None]:
    """Names the step in any error raised inside."""
    try:
        yield
    except PlannerError as error:
        error.where = f"step {number}, {error.where}" if error.where else f"step {number}"
        raise


def job_of_head(job: Job, plan: Plan) -> Job:
    """The job with what the head plan has decided: strategy, ZeRO stage, and when ranks synchronise."""
    (layout,) = plan.layouts.values()
    layout_options = with_fields(job.layout, zero=layout.zero)
    return with_fields(job, strategy=plan.made.strategy, sync=plan.steps[0].sync, layout=layout_options)


def require_same_inputs(head: Plan, plan: Plan) -> None:
    """Raises InputError where the job's inputs are no longer those of the head plan."""

    def inputs_of(plan: Plan) -> tuple[object, ...]:
        uses = with_fields(plan.uses, items={}, feeds={}, dropped=(), left_out={}, sources={}, asked=Asked())
        return plan.ranks, plan.layouts, plan.edges, uses

    if inputs_of(head) != inputs_of(plan):
        raise InputError(
            "what the job uses has changed since the plan was made",
            where=head.name,
            fix="solve it again: its steps would be priced differently",
        )
