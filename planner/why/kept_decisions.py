"""What would shorten a step whose decisions stay: of plans that no strategy decides, as those of several modules.

The step is simulated again, on the plan's own tasks: with a faster network, with one module that computes faster, or
with images or videos of another size. The last are decisions about the data, and are priced only: items keep their
places, their sizes become others, and samples that read them have as many tokens fewer.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from planner.costs import Cost, pricing_of, step_prices
from planner.plan.mesh.identical_groups import identical_groups
from planner.plan.plan_file import Plan
from planner.plan.task import PASS_PHASES, Task
from planner.plan.tasks.expand import expand
from planner.scoring import step_seconds
from planner.simulate import simulate
from planner.specs.base import with_fields
from planner.specs.layers import Module
from planner.specs.layers.stack import Grids
from planner.specs.workload.items import ItemSize, Size, item_outputs
from planner.why.resize_cluster import faster_network
from planner.why.resolved import Sensitivity, gain_of

TIMES = 2.0  # as fast
Parts = tuple[int, ...]
OtherParts = Callable[[Parts, Grids], tuple[Parts, Grids]]


def kept_gains(plan: Plan, seconds: float) -> Iterator[Sensitivity]:
    """The gains of a plan of one step, which takes so many seconds."""
    uses = plan.uses
    network = faster_network(uses.cluster, uses.prices.collectives, TIMES)
    if network:
        prices = with_fields(uses.prices, collectives=network[1])
        faster = with_fields(plan, uses=with_fields(uses, cluster=network[0], prices=prices))
        yield gain_of("twice the bandwidth between nodes", step_seconds(faster), seconds)
    for module in plan.layouts:
        yield gain_of(f"`{module}` computing twice as fast", seconds_with_faster(plan, module), seconds)


def seconds_with_faster(plan: Plan, module: str) -> float:
    """Seconds of the step where one module's passes take half of their compute, and their exchange stays."""
    alike = identical_groups(plan, 0)
    tasks = expand(plan, 0, alike.ranks)
    price = step_prices(pricing_of(plan), tasks)
    return simulate(tasks, halved(price, module), plan.size, alike).step_seconds


def halved(price: Callable[[Task], Cost], module: str) -> Callable[[Task], Cost]:
    """The prices with those of one module's passes at twice the pace."""

    def faster(task: Task) -> Cost:
        cost = price(task)
        if task.module != module or task.phase not in PASS_PHASES:
            return cost
        return replace(cost, value=cost.comm + (cost.value - cost.comm) / TIMES)

    return faster


def data_gains(plan: Plan, seconds: float) -> Iterator[Sensitivity]:
    """The gains of other data, of a plan of one step that takes so many seconds."""
    for what, other in other_data(plan):
        yield gain_of(what, step_seconds(other), seconds)


def other_data(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """The plan with each change of its data, and what the change is."""
    for name, module in plan.uses.models.items():
        changes = {"images at half the pixels": module.half_images, "videos at half the frames": module.half_frames}
        for what, other in changes.items():
            other_plan = resized(plan, name, module, other) if module.input_unit == "patches" else None
            if other_plan:
                yield f"{name}: {what}", other_plan


def resized(plan: Plan, name: str, module: Module, other: OtherParts) -> Plan | None:
    """The plan in which items of a tower have other parts, and samples that read them as many tokens fewer; None where
    nothing changes, or where another encoder reads them, whose own items would be others.
    """
    uses = plan.uses
    sizes = {item: other_size(size, other) for item, size in uses.items[name].items()}
    fewer = {item: item_outputs(module, uses.items[name][item]) - item_outputs(module, sizes[item]) for item in sizes}
    if not any(fewer.values()):
        return None
    items: dict[str, dict[int, Size]] = {**uses.items, name: sizes}
    encoders = {edge.source for edge in plan.edges}
    for edge in (edge for edge in plan.edges if edge.source == name and edge.by == "tokens"):
        target = dict(items[edge.target])
        for item, readers in plan.feeds_of(edge).items():
            for reader in readers:
                size = target[reader]
                if edge.target in encoders or not isinstance(size, int) or size <= fewer[item]:
                    return None
                target[reader] = size - fewer[item]
        items[edge.target] = target
    return with_fields(plan, uses=with_fields(uses, items=items))


def other_size(size: Size, other: OtherParts) -> Size:
    """The size of an item when its images or clips have other patches and grids."""
    whole = size if isinstance(size, ItemSize) else ItemSize(patches=size)
    parts, grids = other(whole.counts, whole.grids)
    return ItemSize(patches=parts[0] if len(parts) == 1 else parts, grids=grids)
