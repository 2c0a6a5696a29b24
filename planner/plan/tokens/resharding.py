"""Resharding of encoders' outputs, from the ranks that hold them to the ranks that read them.

Both ends derive every message from the plan. What one rank holds of an item and what another reads of it are runs of
rows; overlapping rows are sent. Each row that is read comes from one rank, once for each position where it is read.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from planner.plan.plan_file import Edge, Plan
from planner.plan.task import Task
from planner.plan.tokens.encoder_outputs import FedSpan, ItemKey, fed_spans, fed_tokens, layout_stages, reader_of
from planner.plan.tokens.token_shards import TokenRun, token_runs
from planner.specs.layers import Module


class Route(NamedTuple):
    """Rows of one encoder item that are sent from one rank to another, which may be the same."""

    source: int
    target: int
    item: int  # of the encoder
    first: int
    last: int  # the one after
    source_row: int  # row of the source's outputs that holds the first of them
    target_row: int  # row of the target's input that it fills

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.last - self.first


# Module, micro-batch, group of the tasks that carry outputs and their gradients
TransferKey = tuple[str, int | None, str]


def transfer_key(task: Task) -> TransferKey:
    """Return what a transfer of outputs and the transfer of their gradients have in common."""
    return task.module, task.micro_batch, task.group


def is_between_modules(task: Task) -> bool:
    """Whether a send or recv is between two modules."""
    return ">" in task.group


Forwards = Mapping[tuple[ItemKey, int], Task]  # item, first layer → its forward


def forwards_by_layer(tasks: Sequence[Task]) -> Forwards:
    """Return, by item and first layer, the forward that works on it from this layer on."""
    return {((task.module, item), task.layers[0]): task for task in tasks if task.phase == "F" for item in task.items}


def encoder_transfers(plan: Plan, tasks: Sequence[Task]) -> Iterator[tuple[Task, list[tuple[Task, Route]]]]:
    """Yield each send of outputs in a step, with the routes that it carries and the forward that reads each."""
    fed, forwards = fed_spans(plan), forwards_by_layer(tasks)
    by_id = {task.id: task for task in tasks}
    for task in tasks:
        if (task.phase, task.of) == ("send", "F") and is_between_modules(task):
            yield task, [*routes_of_send(plan, task, by_id[task.after[0]], fed, forwards)]


def routes_of_send(
    plan: Plan, send: Task, forward: Task, fed: Mapping[ItemKey, Sequence[FedSpan]], forwards: Forwards
) -> Iterator[tuple[Task, Route]]:
    """Yield the routes of one send, each with the forward that reads it. `forward`: the one whose outputs are sent; the
    reader need not read all of its items.
    """
    spec, (reader, stage) = plan.uses.models[send.module], reader_of(send)
    begin = layout_stages(plan.uses.models[reader], plan.layouts[reader])[stage][0]
    held_runs = [*output_runs(token_runs(spec, plan.layouts[send.module], forward), spec, forward)]
    own = [(item, span) for item in send.items for span in fed[send.module, item] if span.target[0] == reader]
    readers = {task.id: task for _, span in own if (task := forwards.get((span.target, begin)))}
    cross_attended = edge_of_transfer(plan, send).by == "cross_attention"
    output_counts = fed_tokens(plan, "cross_attention") if cross_attended else {}
    for task in readers.values():
        spec, layout = plan.uses.models[task.module], plan.layouts[task.module]
        read = [*whole_runs(task, output_counts)] if cross_attended else token_runs(spec, layout, task)
        yield from ((task, route) for route in routes(held_runs, reader_runs(read, task.module, own)))


def edge_of_transfer(plan: Plan, transfer: Task) -> Edge:
    """Return the edge that a transfer between modules belongs to."""
    name = f"{transfer.module}>{reader_of(transfer)[0]}"
    return next(edge for edge in plan.edges if edge.name == name)


def whole_runs(task: Task, output_counts: Mapping[ItemKey, int]) -> Iterator[TokenRun]:
    """Yield what cross attention of a pass reads: all outputs of its items, one after another, on each of its ranks."""
    for rank in task.ranks:
        at = 0
        for item in task.items:
            count = output_counts.get((task.module, item), 0)  # none for an item that reads nothing
            yield TokenRun(rank, item, 0, count, at)
            at += count


def routes(held: Iterable[TokenRun], read: Iterable[TokenRun]) -> list[Route]:
    """Return the routes from runs that ranks hold to runs that ranks read, by item, row, target, target row."""
    of_item: dict[int, list[TokenRun]] = defaultdict(list)
    for run in held:
        of_item[run.item].append(run)
    result = []
    for reader in read:
        for holder in of_item[reader.item]:
            first, last = max(holder.first, reader.first), min(holder.last, reader.last)
            if first < last:
                at, to = holder.row + first - holder.first, reader.row + first - reader.first
                result.append(Route(holder.rank, reader.rank, reader.item, first, last, at, to))
    return sorted(result, key=lambda route: (route.item, route.first, route.target, route.target_row))


def output_runs(held: Iterable[TokenRun], spec: Module, forward: Task) -> Iterator[TokenRun]:
    """Yield runs of a forward's tokens as runs of its outputs. A class token's row is none, and nobody reads it."""
    unit, hidden = spec.tokens_per_output, spec.class_tokens
    starts = {item: [begin for of, _, begin in forward.documents if of == item] for item in forward.items if hidden}
    for rank, item, first, last, at in held:
        if not hidden:
            yield TokenRun(rank, item, first // unit, last // unit, at // unit)
            continue
        part = bisect_right(starts[item], first) - 1  # a run is of one part
        begin, before = max(first, starts[item][part] + hidden), hidden * (part + 1)
        if begin < last:
            yield TokenRun(rank, item, begin - before, last - before, at + begin - first)


def reader_runs(held: Iterable[TokenRun], module: str, fed: Iterable[tuple[int, FedSpan]]) -> Iterator[TokenRun]:
    """Yield the parts of a module's token runs that one encoder's outputs replace, as runs of these outputs (`fed`)."""
    by_target: dict[ItemKey, list[tuple[int, FedSpan]]] = defaultdict(list)
    for item, span in fed:
        by_target[span.target].append((item, span))
    for run in held:
        for item, span in by_target[module, run.item]:
            first, last = max(run.first, span.first), min(run.last, span.last)
            if first < last:
                yield TokenRun(run.rank, item, first - span.first, last - span.first, run.row + first - run.first)
