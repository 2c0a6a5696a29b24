"""What would shorten a step whose decisions stay: of plans that no strategy decides, as those of several modules.

The step is simulated again, on the plan's own tasks, with a faster network or with one module that computes faster.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from planner.costs import Cost, pricing_of
from planner.plan.mesh.identical_groups import identical_groups
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.plan.tasks.concurrent_passes import PASS_PHASES
from planner.plan.tasks.expand import expand
from planner.scoring import step_seconds
from planner.simulate import simulate
from planner.specs.base import with_fields
from planner.why.resize_cluster import faster_network
from planner.why.sensitivity import Sensitivity, sensitivity_of

TIMES = 2.0  # as fast


def kept_gains(plan: Plan, seconds: float) -> Iterator[Sensitivity]:
    """The gains of a plan of one step, which takes so many seconds."""
    uses = plan.uses
    network = faster_network(uses.cluster, uses.prices.collectives, TIMES)
    if network:
        prices = with_fields(uses.prices, collectives=network[1])
        faster = with_fields(plan, uses=with_fields(uses, cluster=network[0], prices=prices))
        yield sensitivity_of("twice the bandwidth between nodes", seconds, step_seconds(faster))
    for module in plan.layouts:
        yield sensitivity_of(f"`{module}` computing twice as fast", seconds, seconds_with_faster(plan, module))


def seconds_with_faster(plan: Plan, module: str) -> float:
    """Seconds of the step where one module's passes take half of their compute, and their exchange stays."""
    alike = identical_groups(plan, 0)
    tasks = expand(plan, 0, alike.ranks)
    price = pricing_of(plan).with_concurrency(tasks)
    return simulate(tasks, halved(price, module), plan.size, alike).step_seconds


def halved(price: Callable[[Task], Cost], module: str) -> Callable[[Task], Cost]:
    """The prices with those of one module's passes at twice the pace."""

    def faster(task: Task) -> Cost:
        cost = price(task)
        if task.module != module or task.phase not in PASS_PHASES:
            return cost
        return replace(cost, value=cost.comm + (cost.value - cost.comm) / TIMES)

    return faster
