"""The simulation of one step of a plan."""

from functools import partial

from planner.costs import Pricing, pricing_of, step_prices
from planner.plan.mesh.identical_groups import (
    MAX_UNFOLDED_RANKS,
    NO_IDENTICAL_GROUPS,
    IdenticalGroups,
    identical_groups,
)
from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import expand
from planner.plan.tasks.task_table import TaskTable
from planner.simulate import Timeline, equal_step_seconds, simulate
from planner.specs.framework.overlap import AS_PRICED, Overlap

MAX_UNFOLDED_MICRO_BATCHES = 64  # up to so many, each rank of a small job is simulated


def represented_groups(plan: Plan, number: int) -> IdenticalGroups:
    """The groups of a step of many ranks or micro-batches that others represent; of few each is simulated."""
    many = plan.size > MAX_UNFOLDED_RANKS or len(plan.steps[number].micro_batches) > MAX_UNFOLDED_MICRO_BATCHES
    return identical_groups(plan, number) if many else NO_IDENTICAL_GROUPS


def simulated_step(
    plan: Plan, number: int, pricing: Pricing, alike: IdenticalGroups, overlap: Overlap = AS_PRICED
) -> tuple[TaskTable, Timeline]:
    """The tasks of a step that are simulated, and their timeline."""
    tasks = expand(plan, number, alike.ranks)
    return tasks, simulate(tasks, step_prices(pricing, tasks), plan.size, alike, overlap.occupied_streams)


def step_seconds(plan: Plan, number: int = 0) -> float:
    """The seconds of a step alone, for who compares many plans by them; one group of each kind is simulated."""
    pricing, alike = pricing_of(plan), identical_groups(plan, number)
    seconds = equal_step_seconds(plan, number, alike.ranks, partial(step_prices, pricing))
    return simulated_step(plan, number, pricing, alike)[1].step_seconds if seconds is None else seconds
