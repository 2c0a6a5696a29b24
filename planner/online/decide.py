"""One batch, planned once, as the file of its step: on groups of the head, and legal, or refused."""

from dataclasses import replace

from planner.errors import InputError, PlannerError
from planner.online.catalogue import Pool, lay, pools
from planner.plan.model import Group, Plan, Row, assignments
from planner.plan.steps import Head, StepFile
from planner.specs.base import Ranks, changed
from planner.specs.inputs import Inputs
from planner.specs.job import Job
from planner.specs.lengths import Batch
from planner.strategies import strategy
from planner.verify.score import scored


def decide(inputs: Inputs, head: Head, number: int, batch: Batch) -> StepFile:
    """The step of a batch, checked as the runtime will check it. Raises InputError, or Infeasible naming the step."""
    sources = {"job": inputs.sources["job"]}  # the head has the others' digests, and they can be large
    try:
        job = as_decided(inputs.job, head.plan)
        asked = replace(inputs, job=job, batches=(batch,), sources=sources)
        plan = strategy(job.strategy).plan(asked, None)
        require_same_question(head.plan, plan)
        plan = on_catalogue(head.plan, plan)
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


def on_catalogue(head: Plan, plan: Plan) -> Plan:
    """The same micro-batches on groups that exist; laid anew, and then worth what they are worth there."""
    known = {group.ranks: name for name, group in head.groups.items()}
    if all(head.groups.get(name) == group for name, group in plan.groups.items()):
        return plan
    (step,) = plan.steps
    rows = tuple(laid_row(plan, row, known) for row in step.micro_batches)
    names = {a.group for row in rows for a in assignments(plan, row)}
    groups: dict[str, Group] = {name: head.groups[name] for name in names}
    return scored(changed(plan, groups=groups, steps=(changed(step, micro_batches=rows),)), plan.outcome.effort)


def laid_row(plan: Plan, row: Row, known: dict[Ranks, str]) -> Row:
    """One micro-batch, each group within its own pool of ranks."""
    laid: Row = {}
    for pool in pools(plan.uses.cluster):
        own = [a for a in assignments(plan, row) if in_pool(plan.groups[a.group], pool)]
        own.sort(key=lambda a: (-len(plan.groups[a.group].ranks), plan.groups[a.group].ranks))
        blocks = lay(pool, [len(plan.groups[a.group].ranks) for a in own])
        if blocks is None or any(block not in known for block in blocks):
            raise InputError(
                "a micro-batch has groups that are not in the plan's catalogue",
                where="groups",
                fix="use degrees that divide each other, and the ranks of a node",
            )
        laid |= {known[block]: a.entries for block, a in zip(blocks, own, strict=True)}
    return laid


def in_pool(group: Group, pool: Pool) -> bool:
    return pool.first <= group.ranks[0] < pool.first + pool.size
