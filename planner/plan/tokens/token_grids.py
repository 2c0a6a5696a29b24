"""Which tokens of a module's items are places of images: patches of an encoder, and its outputs among text."""

from collections import defaultdict

from planner.plan.plan_file import Plan
from planner.plan.tokens.encoder_outputs import fed_spans
from planner.specs.workload.items import TokenGrid, item_grids, output_grids


def token_grids(plan: Plan, module: str) -> dict[int, tuple[TokenGrid, ...]]:
    """Return the grids among the tokens of each item of a module; of items without any, nothing. Modules in which a
    token's place is its index have none.
    """
    models, sizes = plan.uses.models, plan.uses.items
    axes = models[module].position_axes
    if axes == 1:
        return {}
    if axes == 2:
        return {item: item_grids(models[module], size) for item, size in sizes[module].items()}
    grids: dict[int, list[TokenGrid]] = defaultdict(list)
    for (source, item), places in fed_spans(plan).items():
        outputs = output_grids(models[source], sizes[source][item])
        for place in places:
            reader, number = place.target
            if reader == module and place.by == "tokens":
                grids[number] += [grid._replace(first=place.first + grid.first) for grid in outputs]
    return {item: tuple(of_item) for item, of_item in grids.items()}
