"""Explains where an item of a plan of several modules is: when its outputs are there and when they are read, and the
step if another group worked on it.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from planner.errors import InputError
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Edge, ItemEntry, OffloadedItem, Plan, SharedDeviceItems, assignments
from planner.scoring import Score, score
from planner.simulate import TaskEvent, is_feed
from planner.specs.base import Ranks, Spec, with_fields
from planner.specs.layers.stack import InputUnit
from planner.specs.workload.items import input_count, item_outputs, part_lengths
from planner.why.resolved import Sensitivity, gain_of, solved

MOVES = 4  # groups that are tried: those with least to do


class ItemCell(NamedTuple):
    """The micro-batch and the group that work on an item."""

    micro_batch: int
    group: str


class ReadOutputs(Spec, omit_defaults=False):
    """The outputs of an item of an encoder: when they are there, and when the first pass that reads them begins."""

    tokens: int
    readers: dict[str, tuple[int, ...]]  # module → its items that read them
    ready: float  # seconds since the step began
    needed: float
    waited_for: bool  # that pass begins when they arrive: they hold it up


class WhyPlacedItem(Spec, omit_defaults=False):
    """The answer for an item of a step of several modules."""

    plan: str
    step: int
    module: str
    item: int
    parts: tuple[int, ...]  # tokens of each image or clip, or of the text
    inputs: int  # of all parts, in the unit that the module reads
    unit: InputUnit
    value: float  # seconds of the step
    micro_batch: int
    group: str
    ranks: Ranks
    beside: tuple[int, ...]  # other items of its group in this micro-batch
    reads: dict[str, tuple[int, ...]]  # module → its items whose outputs this one reads
    outputs: ReadOutputs | None  # None: nothing reads it
    moves: tuple[Sensitivity, ...]  # to other groups of its module, in the same micro-batch


def item_moves(step: Plan, number: int, module: str, item: int) -> WhyPlacedItem:
    """The answer for an item of a module of a plan of one step, which is step `number` of its own plan."""
    size = step.uses.items[module][item]
    cell = cell_of(step, module, item)
    scored = score(step)
    return WhyPlacedItem(
        plan=step.name,
        step=number,
        module=module,
        item=item,
        parts=part_lengths(size),
        inputs=input_count(step.uses.models[module], size),
        unit=step.uses.models[module].input_unit,
        value=scored.step_seconds,
        micro_batch=cell.micro_batch,
        group=cell.group,
        ranks=step.groups[cell.group].ranks,
        beside=tuple(other for other in items_of(step, module, cell) if other != item),
        reads={edge.source: sources for edge in step.edges if (sources := read_items(step, edge, module, item))},
        outputs=read_outputs(step, scored, module, item),
        moves=tuple(moves(step, scored, module, item)),
    )


def cell_of(step: Plan, module: str, item: int) -> ItemCell:
    """The micro-batch and the group that have an item. Raises InputError where it was left out."""
    for number, micro_batch in enumerate(step.steps[0].micro_batches):
        for placed in assignments(step, micro_batch):
            if placed.module == module and item in placed.items:
                return ItemCell(number, placed.group)
    raise InputError(f"item {item} of `{module}` is in no micro-batch", where="ITEM", fix="ask about another item")


def items_of(step: Plan, module: str, cell: ItemCell) -> tuple[int, ...]:
    """The items of a module that a group works on in one micro-batch."""
    placed = assignments(step, step.steps[0].micro_batches[cell.micro_batch])
    return tuple(item for a in placed if (a.module, a.group) == (module, cell.group) for item in a.items)


def read_items(step: Plan, edge: Edge, module: str, item: int) -> tuple[int, ...]:
    """Items at the source of an edge whose outputs an item of a module reads."""
    if edge.target != module:
        return ()
    return tuple(source for source, readers in step.feeds_of(edge).items() if item in readers)


def read_outputs(step: Plan, scored: Score, module: str, item: int) -> ReadOutputs | None:
    """When the outputs of an item are there, and when they are first read; None where nothing reads them."""
    readers = {edge.target: step.feeds_of(edge).get(item, ()) for edge in step.edges if edge.source == module}
    readers = {name: items for name, items in readers.items() if items}
    if not readers:
        return None
    passes, cell = forward_passes(scored), cell_of(step, module, item)
    alike = scored.timeline.representative_group
    reading = [
        event
        for name, items in readers.items()
        for reader in items
        for event in passes[name, cell_of(step, name, reader)]
    ]
    first = min(reading, key=lambda event: event.start)
    transfer = f"{cell.group}>{first.module}"
    return ReadOutputs(
        tokens=item_outputs(step.uses.models[module], step.uses.items[module][item]),
        readers=readers,
        ready=max(event.end for event in passes[module, cell]),
        needed=first.start,
        waited_for=(str(cell.micro_batch), alike.get(transfer, transfer)) in brought_last(scored, first),
    )


def brought_last(scored: Score, reading: TaskEvent) -> set[tuple[str, str]]:
    """Micro-batches and ends of the transfers of outputs, one after the other, with whose last a pass begins."""
    events = {event.id: event for event in scored.timeline.events}
    transfers: set[tuple[str, str]] = set()
    cause = events.get(reading.cause)
    while cause and is_feed(cause):
        _, number, ends = cause.id.rsplit("/", 2)
        transfers.add((number, ends))
        cause = events.get(cause.cause)
    return transfers


def forward_passes(scored: Score) -> dict[tuple[str, ItemCell], list[TaskEvent]]:
    """Events of forwards by module and cell; those of a group that was not simulated are those of its likeness."""
    timeline = scored.timeline
    passes: defaultdict[tuple[str, ItemCell], list[TaskEvent]] = defaultdict(list)
    for event in timeline.events:
        if event.phase == "F":
            layers, _, micro_batch, group = event.id.rsplit("/", 3)
            passes[layers.rpartition("[")[0], ItemCell(int(micro_batch), group)].append(event)
    for (module, cell), events in [*passes.items()] if timeline.representative_group else ():
        for group, of in timeline.representative_group.items():
            if of == cell.group:
                passes[module, ItemCell(cell.micro_batch, group)] = events
    return passes


def moves(step: Plan, scored: Score, module: str, item: int) -> Iterator[Sensitivity]:
    """The step with the item in another group of its module, in the same micro-batch: the groups with least to do."""
    cell, busy = cell_of(step, module, item), defaultdict[str, float](float)
    for (of, _, group), seconds in scored.timeline.module_seconds().items():
        if of == module:
            busy[group] += seconds
    others = sorted((name for name in groups_of(step, module) if name != cell.group), key=busy.__getitem__)
    for name in others[:MOVES]:
        move = solved(partial(moved, step, module, item, name))
        yield gain_of(f"in group {name}, ranks {step.groups[name].ranks}", move, scored.step_seconds)


def groups_of(step: Plan, module: str) -> dict[str, None]:
    """The groups that work on a module, in the order of the plan."""
    placed = (a for micro_batch in step.steps[0].micro_batches for a in assignments(step, micro_batch))
    return dict.fromkeys(a.group for a in placed if a.module == module)


def moved(step: Plan, module: str, item: int, group: str) -> Plan:
    """The plan with an item in another group, in the same micro-batch. Raises InputError where that is not legal."""
    cell, every = cell_of(step, module, item), [*step.steps[0].micro_batches]
    placed = [a for a in assignments(step, every[cell.micro_batch]) if a.module == module]
    if any(a.layers or a.share != 1.0 for a in placed):
        raise InputError("only some layers, or a share of a device, are given to its group", where="ITEM")
    entry = next(entry for a in placed for entry in a.entries if item_of(entry) == item)
    cells = {a.group: [other for other in a.entries if other != entry] for a in placed}
    cells.setdefault(group, []).append(entry)
    of_module: dict[str, tuple[ItemEntry, ...] | SharedDeviceItems] = {
        name: tuple(sorted(entries, key=item_of)) for name, entries in cells.items() if entries
    }
    every[cell.micro_batch] = every[cell.micro_batch] | {module: of_module}
    other = with_fields(step, steps=(with_fields(step.steps[0], micro_batches=tuple(every)),))
    require_legal(other, step.name)
    return other


def item_of(entry: int | OffloadedItem) -> int:
    """The number of an item, whether it is offloaded or not."""
    return entry.item if isinstance(entry, OffloadedItem) else entry
