"""One plan, trusted in nothing: is it legal, what is it worth at its own prices, and does it state the same?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.check.finding import Category, Finding
from planner.check.judge import SAME, same
from planner.errors import PlannerError
from planner.plan.join import tidy
from planner.plan.legal import Violation, violations
from planner.plan.model import Outcome, Plan
from planner.units import percent
from planner.verify.score import Score, require_memory, score
from planner.verify.worth import objective_of, seconds_of, worth

DIGITS = 8  # of a gap: files state bounds with nine


@dataclass(frozen=True, slots=True)
class Verified:
    """A plan with every law it breaks, and the score of each step; an illegal one may have none."""

    plan: Plan
    broken: tuple[Violation, ...]
    scores: tuple[Score, ...]

    def seconds(self, steps: int) -> float:
        """Of the first `steps` steps, computed anew."""
        return sum(s.value for s in self.scores[:steps])

    def value(self, steps: int, objective: str) -> float:
        """Of the first `steps` steps, in the unit of an objective."""
        return worth(self.plan, self.seconds(steps), range(steps), objective)

    def gap(self, steps: int) -> float | None:
        """How far from the stated bound; None where none is stated.

        The stated bound and not the one of today: a proof that became weaker shows as a gap that grew.
        """
        bound = stated_bound(self.plan, steps)
        return round(max(0.0, self.seconds(steps) / bound - 1), DIGITS) if bound > 0 else None


class Statement(NamedTuple):
    """What a plan says of itself in one place, beside what its own prices give, in the unit of its objective."""

    where: str
    stated: Outcome
    value: float
    bound: float


def verify(plan: Plan) -> Verified:
    """Laws first, then worth, then whether the bound can be true."""
    priced = price(plan)
    return Verified(plan, (*priced.broken, *refuted(priced)), priced.scores)


def price(plan: Plan) -> Verified:
    """Legal and within memory, and what it is worth, whatever it states."""
    broken = violations(plan)
    if broken:
        return Verified(plan, tuple(broken), ())
    try:
        worth(plan, 1.0, range(len(plan.steps)))  # by an objective that there is, at prices that are stated
        scores = tuple(score(plan, number) for number in range(len(plan.steps)))
        for one in scores:
            require_memory(plan, one)
    except PlannerError as error:
        return Verified(plan, (Violation(error.where, error.message, error.fix),), ())
    return Verified(plan, (), scores)


def statements(verified: Verified) -> Iterator[Statement]:
    """The plan's outcome, and that of each step which states one."""
    plan, scores = verified.plan, verified.scores

    def beside(where: str, stated: Outcome, numbers: Sequence[int]) -> Statement:
        seconds = (
            sum(scores[number].value for number in numbers),
            sum(scores[number].bound.seconds for number in numbers),
        )
        return Statement(where, stated, *(worth(plan, each, numbers) for each in seconds))

    if scores:
        yield beside("outcome", plan.outcome, range(len(scores)))
        for number, step in enumerate(plan.steps):
            if step.outcome:
                yield beside(f"steps[{number}].outcome", step.outcome, [number])


def stated_bound(plan: Plan, steps: int) -> float:
    """Seconds that the first `steps` steps cannot beat, as the plan says; 0 when it says nothing."""
    if steps == len(plan.steps):
        return seconds_of(plan, plan.outcome.bound, range(steps))
    outcomes = [step.outcome for step in plan.steps[:steps]]
    bounds = [seconds_of(plan, o.bound, [number]) for number, o in enumerate(outcomes) if o]
    return sum(bounds) if all(outcomes) else 0.0


def refuted(verified: Verified) -> Iterator[Violation]:
    """A bound above what the plan itself reaches is false."""
    for s in statements(verified):
        goal = objective_of(verified.plan)
        if goal.loss(s.stated.bound) > goal.loss(s.value) * (1 + SAME):
            yield Violation(
                f"{s.where}.bound",
                f"states that nothing beats {goal.said(s.stated.bound)}, and {goal.verb} {goal.said(s.value)} itself",
                "solve again",
            )


def false_statements(verified: Verified, side: str) -> Iterator[Finding]:
    """What a legal plan says of itself and its own prices do not confirm."""
    for s in statements(verified):
        o, goal = s.stated, objective_of(verified.plan)
        if not same(o.value, s.value):
            message = f"the {side} plan states {goal.said(o.value)}, its own prices give {goal.said(s.value)}"
            yield drift(side, f"{s.where}.value", o.value, s.value, message)
        if goal.loss(o.bound) > goal.loss(s.bound) * (1 + SAME):
            message = f"the {side} plan states a bound of {goal.said(o.bound)}, {goal.said(s.bound)} can be proven"
            yield drift(side, f"{s.where}.bound", o.bound, s.bound, message)
        gap = goal.gap(o.value, o.bound) if o.bound > 0 else o.gap
        if abs(gap - o.gap) > SAME:
            message = f"the {side} plan states a gap of {percent(o.gap)}, its own numbers give {percent(gap)}"
            yield drift(side, f"{s.where}.gap", o.gap, gap, message)


def drift(side: str, where: str, stated: float, computed: float, message: str) -> Finding:
    return Finding(category="drift", where=f"{side}: {where}", old=stated, new=tidy(computed), message=message)


def broken_laws(verified: Verified, category: Category, side: str) -> list[Finding]:
    """A finding for each law that a plan breaks."""
    return [
        Finding(
            category=category,
            where=f"{side}: {law.where}",
            old="illegal" if side == "old" else None,
            new="illegal" if side == "new" else None,
            message=f"the {side} plan is illegal: {law.message}; to mend it: {law.fix}",
        )
        for law in verified.broken
    ]
