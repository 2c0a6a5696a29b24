"""Checks one plan: whether it is legal, its score at its own prices, and whether it states the same."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.check.finding import EQUAL, Category, Finding, is_equal
from planner.errors import PlannerError
from planner.plan.legal.plan_laws import Violation, violations
from planner.plan.plan_file import Plan
from planner.scoring import (
    SPACE,
    Score,
    bounded_value,
    computed_by_hand,
    false_statements,
    objective_of,
    objective_value,
    plan_space_seconds,
    require_memory,
    score,
    seconds_for_value,
    with_bound_digest,
)

DIGITS = 8  # of a gap: files state bounds with nine


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A plan with its violations, and the score of each step; an illegal plan may have no scores.

    `false`: what the plan states and its own numbers deny.
    """

    plan: Plan
    violations: tuple[Violation, ...]
    scores: tuple[Score, ...]
    false: tuple[Violation, ...] = ()

    def seconds(self, steps: int) -> float:
        """Simulated seconds of the first `steps` steps; as stated where they were not scored."""
        return sum(s.step_seconds for s in self.scores[:steps]) if self.scores else stated_seconds(self.plan, steps)

    def value(self, steps: int, objective: str) -> float:
        """Objective value of the first `steps` steps, in the unit of the objective."""
        return objective_value(self.plan, self.seconds(steps), range(steps), objective)

    def gap(self, steps: int) -> float | None:
        """Relative distance from the stated bound, of the quickest layouts where the plan states others than its own;
        None where none is stated.

        Uses the stated bound, not one computed now: a proof that became weaker shows as a larger gap.
        """
        bound = stated_bound(self.plan, steps)
        others = self.plan.outcome.quickest
        seconds = seconds_for_value(self.plan, others.value, range(steps)) if others else self.seconds(steps)
        return round(max(0.0, seconds / bound - 1), DIGITS) if bound > 0 else None


def check_plan(plan: Plan) -> CheckedPlan:
    """Check legality, then re-price, then what the plan states; of a plan by hand that is computed."""
    priced = reprice(plan)
    if priced.violations:
        return priced
    stated = replace(priced, plan=computed_by_hand(plan, priced.scores))
    false = (*false_statements(stated.plan, stated.scores), *false_space_bound(stated))
    return replace(stated, false=false)


def as_stated(plan: Plan) -> CheckedPlan:
    """A plan taken by its word: one that was solved just now, or that another planner priced."""
    return CheckedPlan(plan, (), ())


def contradicts_itself(plan: Plan) -> bool:
    """Whether no planner can have written what a plan states: its value is not that of its seconds, its gap not that
    of its bound, or its bound not the one that was found.
    """
    goal, stated = objective_of(plan), plan.outcome
    value = objective_value(plan, plan.prediction.step_seconds, range(len(plan.steps)))
    gap = goal.gap(bounded_value(stated), stated.bound) if stated.bound > 0 else stated.gap
    found = with_bound_digest(plan).outcome.bound_digest
    return not is_equal(value, stated.value) or abs(gap - stated.gap) > EQUAL or stated.bound_digest != found


def stated_seconds(plan: Plan, steps: int) -> float:
    """Seconds of the first steps, as a plan states them."""
    if steps == len(plan.steps):
        return plan.prediction.step_seconds
    return sum(step.prediction.step_seconds for step in plan.steps[:steps] if step.prediction)


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


def stated_bound(plan: Plan, steps: int) -> float:
    """Stated lower bound in seconds on the first `steps` steps; 0 when the plan states none."""
    if steps == len(plan.steps):
        return seconds_for_value(plan, plan.outcome.bound, range(steps))
    outcomes = [step.outcome for step in plan.steps[:steps]]
    bounds = [seconds_for_value(plan, o.bound, [number]) for number, o in enumerate(outcomes) if o]
    return sum(bounds) if all(outcomes) else 0.0


def false_space_bound(verified: CheckedPlan) -> Iterator[Violation]:
    """A violation where a stated bound over a space of layouts is above the one that a search of it finds now."""
    plan, written, goal = verified.plan, verified.plan.outcome, objective_of(verified.plan)
    if written.bound_by != SPACE or not verified.scores:
        return
    steps = range(len(verified.scores))
    proven = objective_value(plan, min(plan_space_seconds(plan), verified.seconds(len(steps))), steps)
    if goal.loss(written.bound) > goal.loss(proven) * (1 + EQUAL):
        stated, found = goal.formatted(written.bound), goal.formatted(proven)
        message = f"the plan states a bound of {stated}, and {found} can be proven"
        yield Violation("outcome.bound", message, "planner solve its job again")


def violation_findings(verified: CheckedPlan, category: Category, side: str) -> list[Finding]:
    """A finding for each violation of a plan, and for each false statement."""
    old, new = ("illegal" if side == name else None for name in ("old", "new"))
    return [
        Finding(
            category,
            f"{side}: {violation.where}",
            old,
            new,
            f"the {side} plan is {fault}: {violation.message}; fix: {violation.fix}",
        )
        for fault, each in (("illegal", verified.violations), ("not what it states", verified.false))
        for violation in each
    ]
