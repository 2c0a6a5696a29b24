"""Outputs of encoder items from the ranks that have them to the ranks that read them: both ends know every message.

What one rank has of an item and what another reads of it are runs of rows; where they overlap, rows travel. Each row
that is read comes from one rank, once for each place where it is read.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from planner.plan.feeding import Fed, Item, fed_tokens, feeding
from planner.plan.model import Edge, Plan
from planner.plan.shares import Run, runs
from planner.plan.task import Task


class Route(NamedTuple):
    """Rows of one encoder item that go from one rank to another, which may be the same."""

    source: int
    target: int
    item: int  # of the encoder
    first: int
    last: int  # the one after
    at: int  # row of the source's outputs in which the first of them lies
    to: int  # row of the target's input

    @property
    def rows(self) -> int:
        return self.last - self.first


Crossing = tuple[str, int | None, str]  # module, micro-batch, group of the tasks that carry outputs and their gradients


def crossing(task: Task) -> Crossing:
    return task.module, task.micro_batch, task.group


def on_edge(task: Task) -> bool:
    """Whether a send or a recv is between modules."""
    return ">" in task.group


def readers(tasks: Sequence[Task]) -> dict[Item, Task]:
    """The forward in which an item enters its module."""
    return {
        (task.module, item): task for task in tasks if task.phase == "F" and task.layers[0] == 0 for item in task.items
    }


def crossings(plan: Plan, tasks: Sequence[Task]) -> Iterator[tuple[Task, list[tuple[Task, Route]]]]:
    """Of a step: each send of outputs with what it carries, to each of the forwards that read some."""
    fed, reading = feeding(plan), readers(tasks)
    by_id = {task.id: task for task in tasks}
    for task in tasks:
        if (task.phase, task.of) == ("send", "F") and on_edge(task):
            yield task, [*carried(plan, task, by_id[task.after[0]], fed, reading)]


def carried(
    plan: Plan, send: Task, made: Task, fed: Mapping[Item, Sequence[Fed]], reading: Mapping[Item, Task]
) -> Iterator[tuple[Task, Route]]:
    """`made`: the forward whose outputs are sent, of which not all items need be read by this reader."""
    spec, reader = plan.uses.models[send.module], send.group.partition(">")[2]
    held = [*outputs(runs(spec, plan.layouts[send.module], made), spec.merged)]
    own = [(item, place) for item in send.items for place in fed[send.module, item] if place.target[0] == reader]
    found = {task.id: task for _, place in own if (task := reading.get(place.target))}
    aside = edge_of(plan, send).by == "cross_attention"
    rows = fed_tokens(plan, "cross_attention") if aside else {}
    for task in found.values():
        spec, layout = plan.uses.models[task.module], plan.layouts[task.module]
        read = [*whole_runs(task, rows)] if aside else runs(spec, layout, task)
        yield from ((task, route) for route in routes(held, readings(read, task.module, own)))


def edge_of(plan: Plan, transfer: Task) -> Edge:
    """Over which a task between modules goes."""
    name = f"{transfer.module}>{transfer.group.partition('>')[2]}"
    return next(edge for edge in plan.edges if edge.name == name)


def whole_runs(task: Task, rows: Mapping[Item, int]) -> Iterator[Run]:
    """What cross attention of a pass reads: all that its items read, one behind the other, on each of its ranks."""
    for rank in task.ranks:
        at = 0
        for item in task.items:
            yield Run(rank, item, 0, rows[task.module, item], at)
            at += rows[task.module, item]


def routes(held: Iterable[Run], read: Iterable[Run]) -> list[Route]:
    """Runs of outputs that ranks have, and that they read. By item, then row, then where they are read."""
    of_item: dict[int, list[Run]] = defaultdict(list)
    for run in held:
        of_item[run.item].append(run)
    found = []
    for reader in read:
        for holder in of_item[reader.item]:
            first, last = max(holder.first, reader.first), min(holder.last, reader.last)
            if first < last:
                at, to = holder.at + first - holder.first, reader.at + first - reader.first
                found.append(Route(holder.rank, reader.rank, reader.item, first, last, at, to))
    return sorted(found, key=lambda route: (route.item, route.first, route.target, route.to))


def outputs(held: Iterable[Run], unit: int) -> Iterator[Run]:
    """Runs of an encoder's tokens as runs of its outputs, each of `unit` tokens."""
    return (Run(rank, item, first // unit, last // unit, at // unit) for rank, item, first, last, at in held)


def readings(held: Iterable[Run], module: str, fed: Iterable[tuple[int, Fed]]) -> Iterator[Run]:
    """Runs of a module's tokens as runs of the outputs of one encoder, whose items stand for tokens as `fed` says."""
    by_target: dict[Item, list[tuple[int, Fed]]] = defaultdict(list)
    for item, place in fed:
        by_target[place.target].append((item, place))
    for run in held:
        for item, place in by_target[module, run.item]:
            first, last = max(run.first, place.first), min(run.last, place.last)
            if first < last:
                yield Run(run.rank, item, first - place.first, last - place.first, run.at + first - run.first)
