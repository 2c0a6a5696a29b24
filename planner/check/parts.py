"""Of a change of a plan, what each cause made of it: the planner, the work, the job.

The work is what is trained, on what: model, data, cluster. A step of other work takes another time, whoever planned it,
so it is compared by token, and judged where that is asked for. What else a job says (its limits, what it fixes, its
strategy, the software) is a choice: a slower step is a regression, as one that the planner made.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from planner.check.checked_plan import CheckedPlan
from planner.check.finding import JOB, WORK, Category, Finding, Tolerances, classify_gap, classify_value
from planner.check.stale_inputs import same_work, step_items
from planner.costs import OBJECTIVES, STEP_SECONDS, Objective
from planner.plan.join_plans import round_digits
from planner.plan.plan_file import Plan, PlanInputs
from planner.scoring import sample_modules, sample_tokens
from planner.solve_job import asked_strategy
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import Cluster
from planner.units import percent

Cause = Literal["planner", "work", "job"]
CLOSE = 5e-5  # relative: less is shown as equal


@dataclass(frozen=True, slots=True)
class Part:
    """A plan before and after one cause; `changed`: what of the inputs changed, none where only planner did."""

    cause: Cause
    before: CheckedPlan
    after: CheckedPlan
    changed: tuple[str, ...] = ()

    @property
    def because(self) -> str:
        """The end of a sentence about the change."""
        if self.cause == "planner":
            return ": the job as it was, by today's planner" if self.changed else ""
        words = f"{' and '.join(self.changed)} changed"
        return f": {words}, for the same model, data and cluster" if self.cause == "job" else f": the {words}"


# ------------------------------------------------------------------------------------------------- what changed


def changed_work(old: Plan, new: Plan) -> tuple[str, ...]:
    """Which of model, data and cluster two plans are not alike in; what these are called does not count."""
    one, other = old.uses, new.uses
    alike = {
        "model": one.models == other.models and old.edges == new.edges,
        "data": same_work(old, new) and one.feeds == other.feeds,
        "cluster": unnamed(one.cluster) == unnamed(other.cluster)
        and old.ranks == new.ranks
        and one.devices == other.devices,
    }
    return tuple(name for name, same in alike.items() if not same)


def unnamed(cluster: Cluster) -> Cluster:
    return with_fields(cluster, name="", source="")


def changed_job(old: Plan, new: Plan) -> tuple[str, ...]:
    """What else of their jobs two plans are not alike in. Profiles of other models or clusters are other ones."""
    asked = {
        name: getattr(old.uses.asked, name) == getattr(new.uses.asked, name)
        for name in ("layout", "degrees", "sync", "within")
    }
    alike = {
        "fix": old.uses.fix == new.uses.fix,
        "limits": old.uses.limits == new.uses.limits,
        "strategy": asked_strategy(old) == asked_strategy(new),
        **asked,
        "loss": old.uses.loss == new.uses.loss,
        "objective": old.outcome.objective == new.outcome.objective,
        "software": software(old.uses) == software(new.uses),
        "profile": measured(old.uses) == measured(new.uses) or bool(changed_work(old, new)),
    }
    return tuple(name for name, same in alike.items() if not same)


def software(uses: PlanInputs) -> tuple[object, ...]:
    prices = uses.prices
    return uses.software, prices.timing, prices.accounting, prices.spread, prices.own_runs


def measured(uses: PlanInputs) -> tuple[object, ...]:
    return uses.prices.modules, uses.prices.collectives, uses.prices.rates


# --------------------------------------------------------------------------------------------------------- judged


def part_findings(part: Part, tolerances: Tolerances) -> Iterator[Finding]:
    """What one cause changed: of objective value, gap, memory and tokens per dollar, as far as these are judged."""
    found: list[Finding] = []
    if part.cause != "work" or tolerances.judge_changed_inputs:
        found += judged_value(part, tolerances, by_token=part.cause == "work")
        found += judged_gap(part, tolerances) if part.cause != "work" else ()
        found += judged_memory(part, tolerances)
        if tolerances.tokens_per_dollar is not None:
            found += judged_objective(part, "tokens_per_dollar", tolerances.tokens_per_dollar)
    blocking = any(each.category == "regression" for each in found)
    if part.cause == "work" or (part.cause == "job" and not blocking):
        yield change_finding(part)
    yield from found


def common_steps(part: Part) -> int:
    return min(len(part.before.plan.steps), len(part.after.plan.steps))


def common_objective(old: Plan, new: Plan) -> str:
    """The objective by which two plans are compared: step seconds where theirs differ."""
    return new.outcome.objective if old.outcome.objective == new.outcome.objective else STEP_SECONDS


def judged_value(part: Part, tolerances: Tolerances, by_token: bool = False) -> Iterator[Finding]:
    name = common_objective(part.before.plan, part.after.plan)
    yield from judged_objective(part, name, tolerances.value, by_token)


def judged_objective(part: Part, name: str, tolerance: float, by_token: bool = False) -> Iterator[Finding]:
    """A finding where both plans are worth something else in an objective; `by_token`: per token of their samples."""
    goal, steps = OBJECTIVES[name], common_steps(part)
    old, new = part.before.value(steps, name), part.after.value(steps, name)
    tokens = [sample_tokens(side.plan, range(steps)) or 1 for side in (part.before, part.after)]
    per = tokens if by_token and not goal.larger_is_better else [1, 1]
    category = classify_value(goal.loss(old) / per[0], goal.loss(new) / per[1], tolerance)
    if category:
        where = "outcome.value" if name == part.after.plan.outcome.objective else f"outcome.{name}"
        unit = " a token" if per != [1, 1] else ""
        yield value_finding(category, where, (old / per[0], new / per[1]), goal, unit + part.because)


def value_finding(
    category: Category, where: str, values: tuple[float, float], goal: Objective, because: str
) -> Finding:
    old, new = values
    more = new / old - 1 if old else 0.0
    message = f"the plan {goal.verb} {goal.formatted(new)} instead of {goal.formatted(old)} ({more:+.1%}){because}"
    return Finding(category, where, round_digits(old), round_digits(new), message)


def judged_gap(part: Part, tolerances: Tolerances) -> Iterator[Finding]:
    steps = common_steps(part)
    old, new = part.before.gap(steps), part.after.gap(steps)
    if old is None or new is None:
        return
    category = classify_gap(old, new, tolerances.gap)
    if category:
        message = f"the gap is {percent(new)} instead of {percent(old)}{part.because}"
        yield Finding(category, "outcome.gap", round_digits(old), round_digits(new), message)


def judged_memory(part: Part, tolerances: Tolerances) -> Iterator[Finding]:
    old, new = (side.plan.prediction.peak_memory_gib for side in (part.before, part.after))
    category = classify_value(old, new, tolerances.memory) if tolerances.memory is not None else None
    if category:
        message = f"the fullest rank holds {new:.2f} GiB instead of {old:.2f} GiB{part.because}"
        yield Finding(category, "prediction.peak_memory_gib", old, new, message)


def change_finding(part: Part) -> Finding:
    """Of other inputs, in one line: how much longer a step takes, and of other work a token and a sample."""
    steps = common_steps(part)
    seconds = part.before.seconds(steps), part.after.seconds(steps)
    counts = {
        "step": (steps, steps),
        "token": tuple(sample_tokens(side.plan, range(steps)) for side in (part.before, part.after)),
        "sample": tuple(sample_count(side.plan, steps) for side in (part.before, part.after)),
    }
    texts = [f"{longer(seconds, count)} a {name}" for name, count in counts.items()][: 3 if part.cause == "work" else 1]
    old, new = map(round_digits, seconds)
    where = WORK if part.cause == "work" else JOB
    return Finding("changed_input", where, old, new, f"{', '.join(texts)}{part.because}")


def sample_count(plan: Plan, steps: int) -> int:
    """Samples of the first steps: each is one item of every module that feeds no other."""
    found = (step_items(plan, number) for number in range(steps))
    return sum(len(items.get(name, ())) for items in found for name in sample_modules(plan))


def longer(seconds: tuple[float, float], counts: tuple[int, ...]) -> str:
    """`55.0 % longer`, `3.4 % shorter` or `as long`, per one of what there are so many of."""
    old, new = (each / (count or 1) for each, count in zip(seconds, counts, strict=True))
    more = new / old - 1 if old else 0.0
    return "as long" if abs(more) < CLOSE else f"{percent(abs(more))} {'longer' if more > 0 else 'shorter'}"
