"""Checks one plan: whether it is legal, its score at its own prices, and whether it states the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.check.finding import Category, Finding
from planner.check.tolerances import EQUAL, is_equal
from planner.errors import PlannerError
from planner.plan.join_plans import round_digits
from planner.plan.legal.plan_laws import Violation, violations
from planner.plan.plan_file import Outcome, Plan
from planner.scoring import Score, objective_of, objective_value, require_memory, score, seconds_for_value
from planner.units import percent

DIGITS = 8  # of a gap: files state bounds with nine


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A plan with its violations, and the score of each step; an illegal plan may have no scores."""

    plan: Plan
    violations: tuple[Violation, ...]
    scores: tuple[Score, ...]

    def seconds(self, steps: int) -> float:
        """Simulated seconds of the first `steps` steps."""
        return sum(s.step_seconds for s in self.scores[:steps])

    def value(self, steps: int, objective: str) -> float:
        """Objective value of the first `steps` steps, in the unit of the objective."""
        return objective_value(self.plan, self.seconds(steps), range(steps), objective)

    def gap(self, steps: int) -> float | None:
        """Relative distance from the stated bound; None where none is stated.

        Uses the stated bound, not one computed now: a proof that became weaker shows as a larger gap.
        """
        bound = stated_bound(self.plan, steps)
        return round(max(0.0, self.seconds(steps) / bound - 1), DIGITS) if bound > 0 else None


class StatedOutcome(NamedTuple):
    """A stated outcome, with the value and bound that its own prices give, in the unit of its objective."""

    where: str
    stated: Outcome
    value: float
    bound: float


def check_plan(plan: Plan) -> CheckedPlan:
    """Check legality, then re-price, then check that the stated bound can be true."""
    priced = reprice(plan)
    return CheckedPlan(plan, (*priced.violations, *beaten_bounds(priced)), priced.scores)


def reprice(plan: Plan) -> CheckedPlan:
    """Check legality and memory, and score each step, whatever the plan states."""
    broken = violations(plan)
    if broken:
        return CheckedPlan(plan, tuple(broken), ())
    try:
        objective_value(plan, 1.0, range(len(plan.steps)))  # raises for an unknown objective, or missing prices
        scores = tuple(score(plan, number) for number in range(len(plan.steps)))
        for one in scores:
            require_memory(plan, one)
    except PlannerError as error:
        return CheckedPlan(plan, (Violation(error.where, error.message, error.fix),), ())
    return CheckedPlan(plan, (), scores)


def statements(verified: CheckedPlan) -> Iterator[StatedOutcome]:
    """The stated outcome of the plan, and of each step that states one."""
    plan, scores = verified.plan, verified.scores

    def compared(where: str, stated: Outcome, numbers: Sequence[int]) -> StatedOutcome:
        seconds = (
            sum(scores[number].step_seconds for number in numbers),
            sum(scores[number].bound.seconds for number in numbers),
        )
        return StatedOutcome(where, stated, *(objective_value(plan, each, numbers) for each in seconds))

    if scores:
        yield compared("outcome", plan.outcome, range(len(scores)))
        for number, step in enumerate(plan.steps):
            if step.outcome:
                yield compared(f"steps[{number}].outcome", step.outcome, [number])


def stated_bound(plan: Plan, steps: int) -> float:
    """Stated lower bound in seconds on the first `steps` steps; 0 when the plan states none."""
    if steps == len(plan.steps):
        return seconds_for_value(plan, plan.outcome.bound, range(steps))
    outcomes = [step.outcome for step in plan.steps[:steps]]
    bounds = [seconds_for_value(plan, o.bound, [number]) for number, o in enumerate(outcomes) if o]
    return sum(bounds) if all(outcomes) else 0.0


def beaten_bounds(verified: CheckedPlan) -> Iterator[Violation]:
    """Violations for stated bounds that the plan itself beats."""
    for s in statements(verified):
        goal = objective_of(verified.plan)
        if goal.loss(s.stated.bound) > goal.loss(s.value) * (1 + EQUAL):
            yield Violation(
                f"{s.where}.bound",
                f"states that nothing beats {goal.formatted(s.stated.bound)}, "
                f"and {goal.verb} {goal.formatted(s.value)} itself",
                "solve again",
            )


def false_statements(verified: CheckedPlan, side: str) -> Iterator[Finding]:
    """Findings for stated values, bounds and gaps that the plan's own prices do not confirm."""
    for s in statements(verified):
        o, goal = s.stated, objective_of(verified.plan)
        if not is_equal(o.value, s.value):
            message = f"the {side} plan states {goal.formatted(o.value)}, its own prices give {goal.formatted(s.value)}"
            yield drift_finding(side, f"{s.where}.value", o.value, s.value, message)
        if goal.loss(o.bound) > goal.loss(s.bound) * (1 + EQUAL):
            message = (
                f"the {side} plan states a bound of {goal.formatted(o.bound)}, {goal.formatted(s.bound)} can be proven"
            )
            yield drift_finding(side, f"{s.where}.bound", o.bound, s.bound, message)
        gap = goal.gap(o.value, o.bound) if o.bound > 0 else o.gap
        if abs(gap - o.gap) > EQUAL:
            message = f"the {side} plan states a gap of {percent(o.gap)}, its own numbers give {percent(gap)}"
            yield drift_finding(side, f"{s.where}.gap", o.gap, gap, message)


def drift_finding(side: str, where: str, stated: float, computed: float, message: str) -> Finding:
    return Finding(category="drift", where=f"{side}: {where}", old=stated, new=round_digits(computed), message=message)


def violation_findings(verified: CheckedPlan, category: Category, side: str) -> list[Finding]:
    """A finding for each violation of a plan."""
    return [
        Finding(
            category=category,
            where=f"{side}: {violation.where}",
            old="illegal" if side == "old" else None,
            new="illegal" if side == "new" else None,
            message=f"the {side} plan is illegal: {violation.message}; fix: {violation.fix}",
        )
        for violation in verified.violations
    ]
