"""Compares two plans and classifies what changed. Both are checked for legality and re-priced first.

A plan that states what its own numbers deny is refused, and an illegal new plan is not compared further. Where the job
asks something else of the same work, plans are compared as ever. Where the work is another, the old decisions are
priced under the new inputs: the new ones have to beat those.
"""

from collections.abc import Iterator

from planner.check.changed_decisions import decision_findings
from planner.check.checked_plan import CheckedPlan, check_plan, violation_findings
from planner.check.finding import Category, Finding, Tolerances, classify_value
from planner.check.parts import Cause, Part, changed_job, changed_work, common_objective, part_findings
from planner.check.stale_inputs import old_decisions_repriced, stale_inputs, unexplained_inputs
from planner.costs import OBJECTIVES, Objective
from planner.errors import InputError
from planner.plan.join_plans import round_digits
from planner.plan.plan_file import Plan

DEFAULT = Tolerances()
UNJUDGED = (
    "the work changed, and nothing tells the planner's part of it: check the folder of the job, or use"
    " --judge-changed-inputs, or --allow-unjudged"
)


def compare(
    old: Plan, new: Plan, tolerances: Tolerances = DEFAULT, names: tuple[str, str] = ("old", "new")
) -> list[Finding]:
    """Every difference, classified; an empty list for equal plans.

    `names`: of their files. Raises InputError where a plan states what its own numbers deny.
    """
    sides = check_plan(old), check_plan(new)
    for checked, name in zip(sides, names, strict=True):
        for first in checked.false:
            raise InputError(first.message, where=f"{name} ({first.where})", fix=first.fix)
    before, after = sides
    if before.violations or after.violations:
        fixed: Category = "drift" if after.violations else "gain"
        broken = [*violation_findings(after, "illegal", "new"), *violation_findings(before, fixed, "old")]
        return [*broken, *stale_inputs(old, new)]
    return [*judged(before, after, tolerances), *informing(before.plan, after.plan)]


def judged(old: CheckedPlan, new: CheckedPlan, tolerances: Tolerances) -> Iterator[Finding]:
    """What two plans are worth. Of other work only what its decisions are, unless it is to be judged."""
    work, job = changed_work(old.plan, new.plan), changed_job(old.plan, new.plan)
    if not any(stale_inputs(old.plan, new.plan)):  # where no file changed, planner did
        job = ()
    cause: Cause = "work" if work else "job" if job else "planner"
    yield from part_findings(Part(cause, old, new, (*work, *job)), tolerances)
    carried = old_decisions_repriced(old.plan, new.plan) if work or job else None
    if carried:
        yield from decisions_findings(carried, new, tolerances)
    elif work and not (tolerances.judge_changed_inputs or tolerances.allow_unjudged):
        yield Finding("unjudged", "uses", None, None, UNJUDGED)


def informing(old: Plan, new: Plan) -> Iterator[Finding]:
    """What differs besides: inputs and decisions."""
    stale = [*stale_inputs(old, new)]
    yield from stale or unexplained_inputs(old, new)
    yield from decision_findings(old, new)


def decisions_findings(carried: CheckedPlan, new: CheckedPlan, tolerances: Tolerances) -> Iterator[Finding]:
    """A finding where the old decisions, under the new inputs, are better or worse than the new ones."""
    name = common_objective(carried.plan, new.plan)
    goal, steps = OBJECTIVES[name], min(len(carried.plan.steps), len(new.plan.steps))
    kept, after = carried.value(steps, name), new.value(steps, name)
    category = classify_value(goal.loss(kept), goal.loss(after), tolerances.value)
    if category in ("regression", "gain"):
        yield decisions_finding(category, kept, after, goal)


def decisions_finding(category: Category, old: float, new: float, goal: Objective) -> Finding:
    how, verb = "worse" if category == "regression" else "better", goal.verb.removesuffix("s")
    took = f"under the new inputs they {verb} {goal.formatted(new)}, the old ones {goal.formatted(old)}"
    message = f"the new decisions are {how}: {took}"
    return Finding(category, "decisions", round_digits(old), round_digits(new), message)
