"""One batch, planned once, as the file of its step: on groups of the head, and legal, or refused."""

from dataclasses import replace

from planner.errors import InputError, PlannerError
from planner.online.laid import on_catalogue
from planner.plan.model import Plan
from planner.plan.steps import Head, StepFile
from planner.specs.base import changed
from planner.specs.inputs import Inputs
from planner.specs.job import Job
from planner.specs.lengths import Batch
from planner.strategies import strategy
from planner.verify.worth import in_objective


def decide(inputs: Inputs, head: Head, number: int, batch: Batch) -> StepFile:
    """The step of a batch, checked as the runtime will check it. Raises InputError, or Infeasible naming the step."""
    sources = {"job": inputs.sources["job"]}  # the head has the others' digests, and they can be large
    try:
        job = as_decided(inputs.job, head.plan)
        asked = replace(inputs, job=job, batches=(batch,), sources=sources)
        plan = strategy(job.strategy).plan(asked, None)
        require_same_question(head.plan, plan)
        plan = in_objective(on_catalogue(head.plan, plan), job.objective)
    except PlannerError as error:
        error.where = f"step {number}, {error.where}" if error.where else f"step {number}"
        raise
    made = StepFile(
        format=StepFile.FORMAT,
        head=head.digest,
        number=number,
        first_row=inputs.first_row,
        effort=inputs.effort,
        step=changed(plan.steps[0], outcome=plan.outcome, prediction=plan.prediction),
        dropped=plan.uses.dropped,
        items=plan.uses.items,
    )
    head.whole(made, f"step {number}")
    return made


def as_decided(job: Job, plan: Plan) -> Job:
    """The job with what the head has settled: which strategy, and when ranks meet."""
    (layout,) = plan.layouts.values()
    wish = changed(job.layout, zero=layout.zero)
    return changed(job, strategy=plan.made.strategy, sync=plan.steps[0].sync, layout=wish)


def require_same_question(head: Plan, plan: Plan) -> None:
    """What the job names today is what the head was made with."""

    def question(asked: Plan) -> tuple[object, ...]:
        return asked.ranks, asked.layouts, asked.edges, changed(asked.uses, items={}, dropped=(), sources={})

    if question(head) != question(plan):
        raise InputError(
            "what the job uses has changed since the plan was made",
            where=head.name,
            fix="solve it again: its steps would be priced differently",
        )
