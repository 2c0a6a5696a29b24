"""Positions of encoders' outputs in the items that read them, the stages that do, and which tokens are of images.

Outputs replace the first tokens of an item, or cross attention reads them beside its tokens. In both cases they are
ordered by edge, then by number of the encoder item. An item may feed several items of several modules, and its readers
may feed others in turn.

Outputs that stand for tokens come to a reader's first stage, log-probabilities to the last, which has the loss. Those
that cross attention reads come to every stage with a layer of it, directly from the ranks that have them: passed on
from stage to stage they would travel with every micro-batch through stages that do not read them.
"""

from collections import defaultdict
from dataclasses import dataclass

from planner.plan.plan_file import Layout, Plan
from planner.plan.task import Task
from planner.specs.base import Layers
from planner.specs.layers import Module
from planner.specs.layers.blocks import kind_blocks
from planner.specs.model import EdgeInput
from planner.specs.workload.items import TokenGrid, item_grids, item_outputs, output_grids

ItemKey = tuple[str, int]  # module, item


@dataclass(frozen=True, slots=True)
class FedSpan:
    """The outputs of one encoder item in one of its readers."""

    target: ItemKey
    first: int  # token of the target that the first output replaces, or its index among all outputs that it attends to
    outputs: int
    by: EdgeInput = "tokens"

    @property
    def last(self) -> int:
        """The index after the last output."""
        return self.first + self.outputs


def fed_spans(plan: Plan) -> dict[ItemKey, list[FedSpan]]:
    """Return, by encoder item, all positions where its outputs are read."""
    used: dict[tuple[ItemKey, EdgeInput], int] = defaultdict(int)
    spans: dict[ItemKey, list[FedSpan]] = defaultdict(list)
    for edge in plan.edges:
        module, sizes = plan.uses.models[edge.source], plan.uses.items[edge.source]
        for item, readers in sorted(plan.feeds_of(edge).items()):
            outputs = item_outputs(module, sizes[item])
            for reader in readers:
                target = (edge.target, reader)
                spans[edge.source, item].append(FedSpan(target, used[target, edge.by], outputs, edge.by))
                used[target, edge.by] += outputs
    return spans


def fed_tokens(plan: Plan, by: EdgeInput = "tokens") -> dict[ItemKey, int]:
    """Return, by reading item, how many of its tokens are outputs of encoders, or how many cross attention reads."""
    counts: dict[ItemKey, int] = {}
    for fed in (fed for of_item in fed_spans(plan).values() for fed in of_item if fed.by == by):
        counts[fed.target] = max(counts.get(fed.target, 0), fed.last)
    return counts


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


def layout_stages(module: Module, layout: Layout) -> tuple[Layers, ...]:
    """Return the layers of each stage."""
    return layout.stages or (Layers(range(module.layers)),)


def reading_stages(module: Module, layout: Layout, by: EdgeInput) -> tuple[int, ...]:
    """Return the stages of a module that read what an edge brings."""
    if by == "tokens":
        return (0,)
    if by == "log_probabilities":
        return (len(layout_stages(module, layout)) - 1,)
    return tuple(
        number
        for number, layers in enumerate(layout_stages(module, layout))
        if any("cross_attention" in kind_blocks(module.layer_kind(layer)) for layer in layers)
    )


def transfer_group(group: str, target: str, stage: int) -> str:
    """Return the group of a transfer from a group's ranks to a module's stage: `v0>llm`, or `v0>llm>3` to stage 3."""
    return f"{group}>{target}" if not stage else f"{group}>{target}>{stage}"


def reader_of(transfer: Task) -> tuple[str, int]:
    """Return the module, and its stage, that reads what a transfer brings. Of any other task, no module."""
    _, *reader = transfer.group.split(">")
    return (reader[0] if reader else "", int(reader[1]) if len(reader) > 1 else 0)
