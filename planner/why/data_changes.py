"""What another resolution or frame rate would cost. These are decisions about the data, and are priced only: items keep
their places, their sizes become others, and samples that read them have as many tokens fewer.
"""

from collections.abc import Callable, Iterator

from planner.plan.plan_file import Plan
from planner.specs.base import with_fields
from planner.specs.layers import Module
from planner.specs.layers.stack import Grids
from planner.specs.workload.items import ItemSize, Size, item_outputs

Parts = tuple[int, ...]
OtherParts = Callable[[Parts, Grids], tuple[Parts, Grids]]


def other_data(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """The plan with other data, each with what is another in it."""
    for name, module in plan.uses.models.items():
        changes = {"images at half the pixels": module.half_images, "videos at half the frames": module.half_frames}
        for what, other in changes.items():
            found = resized(plan, name, module, other) if module.input_unit == "patches" else None
            if found:
                yield f"{name}: {what}", found


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
    """The size of an item with other parts."""
    whole = size if isinstance(size, ItemSize) else ItemSize(patches=size)
    parts, grids = other(whole.counts, whole.grids)
    return ItemSize(patches=parts[0] if len(parts) == 1 else parts, grids=grids)
