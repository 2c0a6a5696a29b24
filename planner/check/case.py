"""Checks a case: its job is solved again, with the options that its plan names, and both plans are compared.

Where inputs changed, the job as it was is solved, too, from what its plan says of it: this parts what the planner made
of a plan from what the input did (`check/parts.py`). A plan written by hand may be without a job: it is checked for
legality and priced. A stored plan blocks that cannot be read, is illegal, or states what its own numbers deny; so does
a job that can no longer be solved.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from planner import files
from planner.check.checked_plan import (
    CheckedPlan,
    as_stated,
    check_plan,
    contradicts_itself,
    stated_seconds,
    violation_findings,
)
from planner.check.compare import informing
from planner.check.finding import Category, Finding, Tolerances, is_equal
from planner.check.parts import Part, changed_job, changed_work, part_findings
from planner.check.stale_inputs import stale_inputs
from planner.check.verdict_store import VerdictStore
from planner.errors import InputError, PlannerError
from planner.plan.join_plans import round_digits
from planner.plan.plan_file import Plan
from planner.solve_job import inputs_again, with_asks_of
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.job import BY_HAND
from planner.units import duration

JOB, PLAN = "job.yaml", "plan.yaml"


@dataclass(frozen=True, slots=True)
class Solving:
    """How inputs become a plan, and a plan the inputs of the job that it was made from."""

    solve: Callable[[Inputs], Plan]
    asked: Callable[[Plan], Inputs]


@dataclass(frozen=True, slots=True)
class CheckedCase:
    """A case and its plan's file, what was found in it, and its plans where there are any: the stored one, and the one
    of today. Two plans that were compared are a case without a name.
    """

    name: str
    path: Path
    findings: tuple[Finding, ...]
    stored: Plan | None = None
    today: Plan | None = None


def check_case(name: str, folder: Path, solving: Solving, tolerances: Tolerances, store: VerdictStore) -> CheckedCase:
    """Check the stored plan of a case, solve its job again, compare both. Raises InputError where it has no job."""
    path = folder / PLAN
    try:
        stored = files.read(path, Plan)
    except InputError as error:
        found = failure("illegal", error, PLAN, "the stored plan cannot be read")
        return CheckedCase(name, path, (found,))
    if not (folder / JOB).is_file():
        if stored.outcome.status != BY_HAND:
            fix = f"put the {JOB} that it solves beside it; or, of a plan by hand, outcome.status: by_hand"
            raise InputError("this case has a plan and no job to solve", where=str(path), fix=fix)
        return CheckedCase(name, path, (*violation_findings(check_plan(stored), "illegal", "stored"),), stored)
    try:
        inputs = inputs_again(folder / JOB, stored)
        key = store.key(stored, inputs, tolerances)
        if store.unchanged(key):
            return CheckedCase(name, path, (), stored, stored)
        today = solving.solve(inputs)
    except PlannerError as error:
        found = failure("regression", error, JOB, "the job can no longer be solved")
        return CheckedCase(name, path, (found,), stored)
    findings = (*case_findings(stored, today, inputs, solving, tolerances),)
    if not findings:
        store.keep(key)
    return CheckedCase(name, path, findings, stored, today)


def failure(category: Category, error: PlannerError, name: str, what: str) -> Finding:
    fix = f"; fix: {error.fix}" if error.fix else ""
    return Finding(category, error.where or name, None, None, f"{what}: {error.message}{fix}")


def case_findings(
    stored: Plan, today: Plan, inputs: Inputs, solving: Solving, tolerances: Tolerances
) -> Iterator[Finding]:
    """How the plan of today differs from the stored one: not at all where only a version is another."""
    stale = [*stale_inputs(stored, today)]
    if unsourced(today) == unsourced(stored):
        yield from stale
        return
    work, job = (changed_work(stored, today), changed_job(stored, today)) if stale else ((), ())
    again = old_job_today(stored, solving) if work or job else today
    made_again = again is not None and unsourced(again) == unsourced(stored)
    before = as_stated(stored) if made_again else check_plan(stored)
    if before.violations or is_edited(before, again):
        yield from violation_findings(before, "illegal", "stored")
        return
    yield from priced_otherwise(before)
    change = Change(before if not before.false else as_stated(stored), again, today, work, job)
    yield from judged_change(change, inputs, solving, tolerances)
    yield from informing(stored, today)


def priced_otherwise(before: CheckedPlan) -> Iterator[Finding]:
    """A finding where today's planner prices a plan otherwise than the one that made it."""
    stated, now = stated_seconds(before.plan, len(before.plan.steps)), before.seconds(len(before.plan.steps))
    if before.false:
        message = (
            f"its decisions take {duration(now)} by today's planner, and {duration(stated)} by the one that made it"
        )
        yield Finding("drift", "uses.prices", round_digits(stated), round_digits(now), message)


def unsourced(plan: Plan) -> Plan:
    """The plan without what tells files and versions apart."""
    outcome = with_fields(plan.outcome, bound_digest="")
    uses = with_fields(plan.uses, sources={})
    return with_fields(plan, made=with_fields(plan.made, by=""), outcome=outcome, uses=uses)


def old_job_today(stored: Plan, solving: Solving) -> Plan | None:
    """What the job that a plan was made from gives today; None where it cannot be told."""
    try:
        return solving.solve(solving.asked(stored))
    except PlannerError:
        return None


def is_edited(before: CheckedPlan, again: Plan | None) -> bool:
    """Whether a plan states what it was not solved to be, rather than what an earlier planner made of it: its value is
    that of its decisions and something else is not, its statements deny each other, or its job gives the value today.
    """
    if not before.false or again is None:
        return bool(before.false)
    stated = before.plan.outcome
    denied = any(each.where.endswith("outcome.value") for each in before.false)
    same = again.outcome.objective == stated.objective and is_equal(again.outcome.value, stated.value)
    return not denied or same or contradicts_itself(before.plan)


@dataclass(frozen=True, slots=True)
class Change:
    """A stored plan, what its job gives today (None: it cannot be told), the plan of today, and what changed."""

    before: CheckedPlan
    again: Plan | None
    today: Plan
    work: tuple[str, ...]
    job: tuple[str, ...]


def judged_change(change: Change, inputs: Inputs, solving: Solving, tolerances: Tolerances) -> Iterator[Finding]:
    """Findings of each part of a change; of the whole where the work is the same and no part alone is too much."""
    found = [f for part in parts_of(change, inputs, solving) for f in part_findings(part, tolerances)]
    yield from found
    if change.work and change.again is None and not (tolerances.allow_unjudged or tolerances.judge_changed_inputs):
        message = "the job as it was cannot be solved today, which would tell the planner's part"
        yield Finding("unjudged", "uses", None, None, f"{message}; planner check --update takes the new plan")
    if change.job and not change.work and not any(f.category == "regression" for f in found):
        whole = Part("job", change.before, as_stated(change.today), ("planner", *change.job))
        yield from (f for f in part_findings(whole, tolerances) if f.category == "regression")


def parts_of(change: Change, inputs: Inputs, solving: Solving) -> Iterator[Part]:
    """The planner's part, that of the work, and that of the job, as far as they are there."""
    here, today = change.before, as_stated(change.today)
    if change.again is not None:
        yield Part("planner", here, as_stated(change.again), (*change.work, *change.job))
        here = as_stated(change.again)
    if change.work and change.job:
        try:
            middle = as_stated(solving.solve(with_asks_of(inputs, change.before.plan)))
        except PlannerError:  # what was asked is not possible of this work
            yield Part("work", here, today, (*change.work, *change.job))
            return
        yield Part("work", here, middle, change.work)
        yield Part("job", middle, today, change.job)
    elif change.work:
        yield Part("work", here, today, change.work)
    elif change.job:
        yield Part("job", here, today, change.job)
