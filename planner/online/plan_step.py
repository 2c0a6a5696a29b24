"""Plans one batch with one effort, as the file of its step, on groups of the head plan."""

from dataclasses import replace

from planner.errors import InputError, PlannerError
from planner.online.catalogue_placement import place_on_catalogue
from planner.plan.plan_file import Plan
from planner.plan.step_files import PlanHead, StepFile
from planner.scoring import restate_in_objective
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.job import Job
from planner.specs.workload.samples import SampleBatch
from planner.strategies import strategy_called


def plan_step(inputs: Inputs, head: PlanHead, number: int, batch: SampleBatch) -> StepFile:
    """Plans the step of a batch, and checks it as the runtime will. Raises InputError or Infeasible naming the step."""
    sources = {"job": inputs.sources["job"]}  # the head plan has the digests of the others, which can be large files
    try:
        job = job_of_head(inputs.job, head.plan)
        step_inputs = replace(inputs, job=job, batches=(batch,), sources=sources)
        plan = strategy_called(job.strategy).plan(step_inputs, None)
        require_same_inputs(head.plan, plan)
        plan = restate_in_objective(place_on_catalogue(head.plan, plan), job.objective)
    except PlannerError as error:
        error.where = f"step {number}, {error.where}" if error.where else f"step {number}"
        raise
    step_file = StepFile(
        format=StepFile.FORMAT,
        head=head.digest,
        number=number,
        first_row=inputs.first_row,
        effort=inputs.effort,
        step=with_fields(plan.steps[0], outcome=plan.outcome, prediction=plan.prediction),
        dropped=plan.uses.dropped,
        items=plan.uses.items,
    )
    head.complete_plan(step_file, f"step {number}")
    return step_file


def job_of_head(job: Job, plan: Plan) -> Job:
    """The job with what the head plan has decided: strategy, ZeRO stage, and when ranks synchronise."""
    (layout,) = plan.layouts.values()
    layout_options = with_fields(job.layout, zero=layout.zero)
    return with_fields(job, strategy=plan.made.strategy, sync=plan.steps[0].sync, layout=layout_options)


def require_same_inputs(head: Plan, plan: Plan) -> None:
    """Raises InputError where the job's inputs are no longer those of the head plan."""

    def inputs_of(plan: Plan) -> tuple[object, ...]:
        return plan.ranks, plan.layouts, plan.edges, with_fields(plan.uses, items={}, dropped=(), sources={})

    if inputs_of(head) != inputs_of(plan):
        raise InputError(
            "what the job uses has changed since the plan was made",
            where=head.name,
            fix="solve it again: its steps would be priced differently",
        )
