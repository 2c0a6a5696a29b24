"""What a plan is worth in the unit of its objective, from the seconds of its steps; and back."""

from collections.abc import Sequence

from planner.costs.objective import STEP_SECONDS, Objective, Work, objective_called
from planner.plan.join import tidy
from planner.plan.model import Outcome, Plan, assignments
from planner.specs.base import changed
from planner.specs.items import lengths_of


def in_objective(plan: Plan, name: str) -> Plan:
    """A plan that states its outcomes in seconds, as strategies do, in the unit of an objective. Raises InputError."""
    if name == STEP_SECONDS:
        return plan

    def stated(outcome: Outcome, numbers: Sequence[int]) -> Outcome:
        value, bound = (tidy(worth(plan, seconds, numbers, name)) for seconds in (outcome.value, outcome.bound))
        return changed(outcome, objective=name, value=value, bound=bound)

    every = range(len(plan.steps))
    steps = [
        changed(step, outcome=stated(step.outcome, [number])) if step.outcome else step
        for number, step in enumerate(plan.steps)
    ]
    instead = [
        each if each.value is None else changed(each, value=tidy(worth(plan, each.value, every, name)))
        for each in plan.instead
    ]
    return changed(plan, outcome=stated(plan.outcome, every), steps=tuple(steps), instead=tuple(instead))


def objective_of(plan: Plan) -> Objective:
    """Raises InputError where the plan names none that there is."""
    return objective_called(plan.outcome.objective, f"{plan.name} (outcome.objective)")


def worth(plan: Plan, seconds: float, numbers: Sequence[int], name: str = "") -> float:
    """What these steps, done in so many seconds, are in the unit of the plan's objective, or of another one."""
    objective = objective_called(name) if name else objective_of(plan)
    return objective.of(Work(seconds, plan.uses.cluster, plan.uses.devices, tokens(plan, numbers)))


def mean_worth(plan: Plan, seconds: float) -> float:
    """What the mean step is, done in so many seconds."""
    every = range(len(plan.steps))
    return objective_of(plan).of(Work(seconds, plan.uses.cluster, plan.uses.devices, tokens(plan, every) / len(every)))


def seconds_of(plan: Plan, value: float, numbers: Sequence[int]) -> float:
    """The seconds of these steps with which the plan's objective has a value: losses are proportional to them."""
    loss = objective_of(plan).loss
    return loss(value) / loss(worth(plan, 1.0, numbers))


def tokens(plan: Plan, numbers: Sequence[int]) -> int:
    """Of these steps, in their samples."""
    return sum(sum(lengths_in(plan, name, numbers)) for name in samples(plan))


def samples(plan: Plan) -> list[str]:
    """Modules whose items are samples: they feed no other, and end in a loss."""
    feeding = {edge.source for edge in plan.edges}
    return [name for name in plan.layouts if name not in feeding]


def lengths_in(plan: Plan, module: str, numbers: Sequence[int]) -> tuple[int, ...]:
    """Tokens of the items, or of their parts, that these steps work on."""
    placed = (a for number in numbers for row in plan.steps[number].micro_batches for a in assignments(plan, row))
    items = (plan.uses.items[module][item] for a in placed if a.module == module for item in a.items)
    return tuple(length for size in items for length in lengths_of(size))
