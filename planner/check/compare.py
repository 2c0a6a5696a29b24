"""Compares two plans and classifies what changed. Both are checked for legality and re-priced first.

A plan that states what its own numbers deny is refused, and an illegal new plan is not compared further. Objective
values are compared where both plans solve the same problem. Where inputs changed, the difference is only noted, and the
old decisions are priced under the new inputs instead: this tells stale inputs from a worse plan.
"""

from collections.abc import Iterator

from planner.check.changed_decisions import decision_findings
from planner.check.checked_plan import CheckedPlan, check_plan, violation_findings
from planner.check.finding import Category, Finding, Tolerances, classify_gap, classify_value
from planner.check.stale_inputs import old_decisions_repriced, same_problem, same_work, stale_inputs, unexplained_inputs
from planner.costs import OBJECTIVES, STEP_SECONDS, Objective
from planner.errors import InputError
from planner.plan.join_plans import round_digits
from planner.plan.plan_file import Plan
from planner.units import percent

DEFAULT = Tolerances()


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
    return differences(*sides, tolerances)


def differences(old: CheckedPlan, new: CheckedPlan, tolerances: Tolerances) -> list[Finding]:
    stale = [*stale_inputs(old.plan, new.plan)]
    if old.violations or new.violations or old.false or new.false:
        fixed: Category = "drift" if new.violations or new.false else "gain"
        return [*violation_findings(new, "illegal", "new"), *violation_findings(old, fixed, "old"), *stale]
    return [
        *value_findings(old, new, bool(stale), tolerances),
        *stale,
        *([] if stale else unexplained_inputs(old.plan, new.plan)),
        *decision_findings(old.plan, new.plan),
    ]


def value_findings(old: CheckedPlan, new: CheckedPlan, stale: bool, tolerances: Tolerances) -> Iterator[Finding]:
    """Compare objective value and gap over the steps that both plans have; judged, or only noted."""
    note = incomparable_reason(old.plan, new.plan, stale)
    steps = min(len(old.plan.steps), len(new.plan.steps))
    name = common_objective(old.plan, new.plan)
    goal = OBJECTIVES[name]
    before, after = old.value(steps, name), new.value(steps, name)
    category = classify_value(goal.loss(before), goal.loss(after), tolerances.value)
    if category:
        yield value_finding("drift" if note else category, before, after, note, goal)
    old_gap, new_gap = old.gap(steps), new.gap(steps)
    if old_gap is not None and new_gap is not None:
        category = classify_gap(old_gap, new_gap, tolerances.gap)
        if category:
            yield gap_finding("drift" if note else category, old_gap, new_gap, note)
    carried = old_decisions_repriced(old.plan, new.plan) if note else None
    if carried:
        kept = carried.value(steps, name)
        category = classify_value(goal.loss(kept), goal.loss(after), tolerances.value)
        if category in ("regression", "gain"):
            yield decisions_finding(category, kept, after, goal)


def incomparable_reason(old: Plan, new: Plan, stale: bool) -> str:
    """Why a difference in objective value says nothing about the decisions; empty when it does."""
    if stale and not same_problem(old, new):
        return "the inputs changed"
    if not same_work(old, new):
        return "the work changed"
    if old.outcome.objective != new.outcome.objective:
        return "the objective changed"
    return ""


def common_objective(old: Plan, new: Plan) -> str:
    """The objective by which two plans are compared: step seconds where theirs differ."""
    return new.outcome.objective if old.outcome.objective == new.outcome.objective else STEP_SECONDS


def value_finding(category: Category, old: float, new: float, note: str, goal: Objective) -> Finding:
    more = new / old - 1 if old else 0.0
    message = f"the plan {goal.verb} {goal.formatted(new)} instead of {goal.formatted(old)} ({more:+.1%})"
    return Finding(category, "outcome.value", round_digits(old), round_digits(new), with_note(message, note))


def gap_finding(category: Category, old: float, new: float, note: str) -> Finding:
    message = f"the gap is {percent(new)} instead of {percent(old)}"
    return Finding(category, "outcome.gap", round_digits(old), round_digits(new), with_note(message, note))


def decisions_finding(category: Category, old: float, new: float, goal: Objective) -> Finding:
    how, verb = "worse" if category == "regression" else "better", goal.verb.removesuffix("s")
    took = f"under the new inputs they {verb} {goal.formatted(new)}, the old ones {goal.formatted(old)}"
    message = f"the new decisions are {how}: {took}"
    return Finding(category, "decisions", round_digits(old), round_digits(new), message)


def with_note(message: str, note: str) -> str:
    return f"{message}, not judged: {note}" if note else message
