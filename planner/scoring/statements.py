"""Reads plan files, and holds what each states of itself against what its own decisions and prices give.

Screens, gates and runs show or rely on stated numbers, so that a file whose outcome or prediction is not its own is
refused wherever one is read (`planner.pipeline`), as is one that cannot be executed or compared. Nothing is searched
here: a bound over the space of layouts is held against its digest alone, and `planner check` finds it again.

A bound over the space of layouts takes seconds to find, so its digest tells whoever reads a plan that it was edited.

A plan whose `outcome.status` is `by_hand` states nothing: its outcome and prediction are computed as it is read, so
that decisions can be changed in an editor.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from planner import files
from planner.costs import find_objective
from planner.errors import InputError
from planner.plan.join_plans import total_outcome, total_prediction
from planner.plan.legal.plan_laws import Violation, require_legal
from planner.plan.plan_file import Breakdown, Outcome, Plan, Prediction, PricedLayouts
from planner.scoring.bounds.bound_scope import bound_over
from planner.scoring.bounds.step_bounds import SPACE, bounds_same_work
from planner.scoring.objective_value import BESIDE, objective_of, objective_value, restate_in_objective
from planner.scoring.possible import answer_about
from planner.scoring.score import OPTIMAL_GAP, Score, bounded_value, outcome_of, prediction_of, score
from planner.specs.base import with_fields
from planner.specs.library import is_file
from planner.units import percent

EQUAL = 1e-6  # relative: two evaluations of the same plan differ by less, and files have nine digits
ZERO = 1e-9  # seconds, GiB or a share: less is rounding of zero
BY_HAND = "by_hand"
FIX = "planner solve its job again; or, where decisions were changed on purpose, outcome.status: by_hand"


class Stated(NamedTuple):
    """An outcome and a prediction of some steps, as a file states them, and what these steps give."""

    where: str  # "" for the plan, else `steps[1].`
    outcome: Outcome
    prediction: Prediction | None
    numbers: Sequence[int]


def computed_by_hand(plan: Plan, scores: Sequence[Score]) -> Plan:
    """A plan by hand with the outcome and prediction that its scores give; any other plan as it is."""
    if plan.outcome.status != BY_HAND:
        return plan
    outcomes = [
        with_fields(outcome_of(each, (step.outcome or plan.outcome).effort), status=BY_HAND)
        for step, each in zip(plan.steps, scores, strict=True)
    ]
    predictions = [prediction_of(each) for each in scores]
    steps = tuple(
        with_fields(step, outcome=outcome, prediction=prediction) if step.outcome else step
        for step, outcome, prediction in zip(plan.steps, outcomes, predictions, strict=True)
    )
    in_seconds = with_fields(
        plan,
        outcome=with_fields(total_outcome(outcomes), status=BY_HAND),
        prediction=total_prediction(predictions),
        steps=steps,
        alternatives=(),
    )
    return with_fields(restate_in_objective(in_seconds, plan.outcome.objective), alternatives=plan.alternatives)


def require_true(plan: Plan, scores: Sequence[Score], where: str) -> None:
    """Raises InputError, located in the file `where`, for the first statement that the plan's own numbers deny."""
    for first in false_statements(plan, scores):
        raise InputError(first.message, where=f"{where} ({first.where})", fix=first.fix)


def false_statements(plan: Plan, scores: Sequence[Score]) -> Iterator[Violation]:
    """Each stated number that is not what the plan's own decisions and prices give."""
    stated = [Stated("", plan.outcome, plan.prediction, range(len(scores)))]
    stated += [
        Stated(f"steps[{number}].", step.outcome, step.prediction, [number])
        for number, step in enumerate(plan.steps)
        if step.outcome
    ]
    for each in stated:
        for where, message in (*false_outcome(plan, scores, each), *false_prediction(scores, each)):
            yield Violation(f"{each.where}{where}", message, FIX)
    if is_searched(plan) and plan.outcome.bound_digest != bound_digest(plan):
        message = "the bound over the space of layouts, or a layout beside the plan's, is not the one that was found"
        yield Violation("outcome.bound", f"{message} for these inputs", FIX)
    over = plan.outcome.bound_over
    if over and over != bound_over(plan):
        yield Violation("outcome.bound_over", "the bound is not over these layouts", FIX)


def false_outcome(plan: Plan, scores: Sequence[Score], stated: Stated) -> Iterator[tuple[str, str]]:
    """Where a stated value, bound, gap or status is another than the scores', and a sentence."""
    written, goal = stated.outcome, objective_of(plan)
    of_steps = [scores[number] for number in stated.numbers]
    value = objective_value(plan, sum(each.step_seconds for each in of_steps), stated.numbers)
    if differs(written.value, value):
        stated_text, own_text = goal.formatted(written.value), goal.formatted(value)
        if stated_text == own_text:
            stated_text, own_text = f"{written.value:.9g}", f"{value:.9g}"
        verb = goal.verb.removesuffix("s")
        yield "outcome.value", f"the plan states {stated_text}, and its decisions {verb} {own_text}"
    proven = value
    if SPACE not in written.bound_by.split("+"):
        seconds = sum(min(each.bound.seconds, each.step_seconds) for each in of_steps)
        proven = objective_value(plan, seconds, stated.numbers)
    if goal.loss(written.bound) > goal.loss(proven) * (1 + EQUAL):
        shown = goal.formatted(written.bound)
        yield (
            "outcome.bound",
            f"the plan states a bound of {shown}, and {goal.verb} {goal.formatted(value)} itself"
            if goal.loss(written.bound) > goal.loss(value) * (1 + EQUAL)
            else f"the plan states a bound of {shown}, and {goal.formatted(proven)} can be proven",
        )
    gap = goal.gap(bounded_value(written), written.bound)
    if written.bound > 0 and abs(gap - written.gap) > EQUAL:
        yield (
            "outcome.gap",
            f"the plan states a gap of {percent(written.gap)}, and its value and bound give {percent(gap)}",
        )
    own = goal.gap(written.value, written.bound)
    if written.status == "optimal" and own > OPTIMAL_GAP + EQUAL:
        yield "outcome.status", f"the plan states that it is optimal, at a gap of {percent(own)}"
    if written.quickest:
        yield from false_quickest(plan, written.quickest)


def false_quickest(plan: Plan, quickest: PricedLayouts) -> Iterator[tuple[str, str]]:
    """Where the quickest layouts that a plan states cannot be those it was chosen beside, and a sentence."""
    goal, written, most = objective_of(plan), plan.outcome, 1.0 + plan.uses.asked.within
    value, stated = goal.loss(written.value), goal.loss(quickest.value)
    if stated > value * (1 + EQUAL):
        yield "outcome.quickest", f"the plan {goal.verb} {goal.formatted(written.value)}, and is quicker itself"
    elif value > most * stated * (1 + EQUAL):
        more = percent(value / stated - 1.0)
        yield "outcome.quickest", f"the plan is {more} slower, and its job allows {percent(most - 1.0)} (within)"
    if not bounds_same_work(written.bound_by) and goal.loss(written.bound) > stated * (1 + EQUAL):
        yield "outcome.bound", f"the plan states that no layout is quicker than {goal.formatted(written.bound)}"


def false_prediction(scores: Sequence[Score], stated: Stated) -> Iterator[tuple[str, str]]:
    """Where a stated time or memory is another than the scores', and a sentence."""
    written = stated.prediction
    if written is None:
        return
    found = total_prediction([prediction_of(scores[number]) for number in stated.numbers])
    pairs = [*numbers_of(written, found, ""), *numbers_of(written.breakdown, found.breakdown, "breakdown.")]
    for name, one, other in pairs:
        if differs(one, other):
            yield f"prediction.{name}", f"the plan states {name} {one:.6g}, and its decisions give {other:.6g}"


def numbers_of(
    one: Prediction | Breakdown, other: Prediction | Breakdown, prefix: str
) -> Iterator[tuple[str, float, float]]:
    """Each number of two predictions, or of their breakdowns, by its name in the file."""
    for name in one.__struct_fields__:
        if name != "breakdown":
            yield f"{prefix}{name}", getattr(one, name), getattr(other, name)


def differs(one: float, other: float) -> bool:
    """Whether two numbers are further apart than two evaluations of the same plan."""
    return abs(one - other) > max(EQUAL * max(abs(one), abs(other)), ZERO)


def bound_digest(plan: Plan) -> str:
    """SHA-256, its first 16 hex digits, of a plan's bounds, of layouts beside it, and of what these were found from."""
    bounds = [plan.outcome.bound, *(step.outcome.bound for step in plan.steps if step.outcome)]
    outcome = plan.outcome
    beside = {name: each for name in BESIDE if (each := getattr(outcome, name))}
    found = files.json_text({"bounds": bounds, "made": plan.made, "uses": plan.uses} | beside)
    return hashlib.sha256(found.encode()).hexdigest()[:16]


def with_bound_digest(plan: Plan) -> Plan:
    """The plan with what its bound is over, and the digest of what a search found beside it."""
    if not is_searched(plan):
        return plan
    return with_fields(
        plan, outcome=with_fields(plan.outcome, bound_over=bound_over(plan), bound_digest=bound_digest(plan))
    )


def is_searched(plan: Plan) -> bool:
    """Whether the bound of any step is over the space of layouts, or layouts of that space stand beside the plan's."""
    return SPACE in plan.outcome.bound_by.split("+") or plan.outcome.quickest is not None


class ScoredPlan(NamedTuple):
    """A plan as it was read, whose statements are true, and the score of each step."""

    plan: Plan
    scores: list[Score]


def read_scored(path: str | Path) -> ScoredPlan:
    """The plan of a file with its scores: legal, and what it states is what its own numbers give. Raises InputError."""
    plan = read_legal(path)
    with answer_about(str(path), lambda where: f"{path} ({where})"):
        scores = [score(plan, number) for number in range(len(plan.steps))]
    plan = computed_by_hand(plan, scores)
    require_true(plan, scores, str(path))
    return ScoredPlan(plan, scores)


def read_plan(path: str | Path) -> Plan:
    """The plan of a file as `read_scored` reads it; without prices there is nothing that it could state."""
    plan = read_legal(path)
    return read_scored(path).plan if plan.uses.prices.has_prices else plan


def read_legal(path: str | Path) -> Plan:
    """The plan of a file, legal and with an objective that there is. Raises InputError."""
    plan = files.read(path, Plan)
    require_legal(plan, str(path))
    find_objective(plan.outcome.objective, f"{path} (outcome.objective)")
    return plan


def scored_at(reference: str) -> ScoredPlan | None:
    """The plan that a path leads to, scored; None where it leads to a job, or is a job's name. Raises InputError."""
    path = Path(reference)
    return read_scored(path) if is_file(path) and files.format_of(path) == Plan.FORMAT else None
