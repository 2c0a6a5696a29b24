"""The objective value of a plan in the unit of its objective, from the seconds of its steps; and back."""

from collections.abc import Sequence

from planner.costs import STEP_SECONDS, Objective, StepWork, find_objective
from planner.plan.join_plans import round_digits
from planner.plan.plan_file import Alternative, Outcome, Plan, assignments
from planner.specs.base import with_fields
from planner.specs.workload.items import part_lengths

BESIDE = ("quickest", "conventional")  # of an outcome: layouts beside the plan's own


def restate_in_objective(plan: Plan, name: str) -> Plan:
    """A plan whose outcomes are in seconds, as strategies state them, restated in an objective. Raises InputError."""
    if name == STEP_SECONDS:
        return plan

    def stated(outcome: Outcome, numbers: Sequence[int]) -> Outcome:
        def value_of(seconds: float) -> float:
            return round_digits(objective_value(plan, seconds, numbers, name))

        others = {field: each for field in BESIDE if (each := getattr(outcome, field))}
        beside = {field: with_fields(each, value=value_of(each.value)) for field, each in others.items()}
        value, bound = value_of(outcome.value), value_of(outcome.bound)
        return with_fields(outcome, objective=name, value=value, bound=bound, **beside)

    every = range(len(plan.steps))
    steps = [
        with_fields(step, outcome=stated(step.outcome, [number])) if step.outcome else step
        for number, step in enumerate(plan.steps)
    ]

    def restated(tried: Alternative) -> Alternative:
        given = {field: seconds for field in ("value", "about") if (seconds := getattr(tried, field)) is not None}
        values = {field: objective_value(plan, seconds, every, name) for field, seconds in given.items()}
        return with_fields(tried, **{field: round_digits(value) for field, value in values.items()})

    alternatives = tuple(map(restated, plan.alternatives))
    return with_fields(plan, outcome=stated(plan.outcome, every), steps=tuple(steps), alternatives=alternatives)


def objective_of(plan: Plan) -> Objective:
    """The objective that a plan names. Raises InputError where there is none of that name."""
    return find_objective(plan.outcome.objective, f"{plan.name} (outcome.objective)")


def objective_value(plan: Plan, seconds: float, numbers: Sequence[int], name: str = "") -> float:
    """Objective value of these steps when they take so many seconds; of another objective where `name` is given."""
    objective = find_objective(name) if name else objective_of(plan)
    return objective.of(StepWork(seconds, plan.uses.cluster, plan.uses.devices, sample_tokens(plan, numbers)))


def mean_objective_value(plan: Plan, seconds: float) -> float:
    """Objective value of the mean step when it takes so many seconds."""
    every = range(len(plan.steps))
    return objective_of(plan).of(
        StepWork(seconds, plan.uses.cluster, plan.uses.devices, sample_tokens(plan, every) / len(every))
    )


def seconds_for_value(plan: Plan, value: float, numbers: Sequence[int]) -> float:
    """Seconds of these steps at which the plan's objective has this value: losses are proportional to seconds."""
    loss = objective_of(plan).loss
    return loss(value) / loss(objective_value(plan, 1.0, numbers))


def sample_tokens(plan: Plan, numbers: Sequence[int]) -> int:
    """Tokens of the samples of these steps."""
    return sum(sum(item_lengths(plan, name, numbers)) for name in sample_modules(plan))


def sample_modules(plan: Plan) -> list[str]:
    """Modules whose items are samples: they feed no other module, and end in a loss."""
    feeding = {edge.source for edge in plan.edges}
    return [name for name in plan.layouts if name not in feeding]


def item_lengths(plan: Plan, module: str, numbers: Sequence[int]) -> tuple[int, ...]:
    """Tokens of the items of these steps, or of their parts."""
    placed = (
        a
        for number in numbers
        for micro_batch in plan.steps[number].micro_batches
        for a in assignments(plan, micro_batch)
    )
    items = (plan.uses.items[module][item] for a in placed if a.module == module for item in a.items)
    return tuple(length for size in items for length in part_lengths(size))
