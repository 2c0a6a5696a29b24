"""Which tokens of a task's items lie on which of its ranks, known to all of them without a message."""

from collections.abc import Iterator
from typing import NamedTuple

from planner.plan.mesh import coordinates
from planner.plan.model import Layout
from planner.plan.task import Task
from planner.specs.base import Ranks
from planner.specs.dealing import Span, dealt, share
from planner.specs.layers import Module


class Run(NamedTuple):
    """Consecutive tokens of one item between layers, in the memory of a rank from row `at` on."""

    rank: int
    item: int
    first: int
    last: int  # the one after
    at: int


def runs(spec: Module, layout: Layout, task: Task) -> list[Run]:
    """Of what passes between layers, over all ranks of a forward, in the order in which it lies on each."""
    return [run for rank in task.ranks for run in runs_on(spec, layout, task, rank)]


def runs_on(spec: Module, layout: Layout, task: Task, rank: int) -> Iterator[Run]:
    at, unit, tp, documents = 0, spec.merged, layout.tp, task.documents
    spans = tokens_on(spec, layout, task, rank)
    if tp > 1:
        spans = share(spans, tp, coordinates(layout, rank)["tp"], unit)
    for document, first, last in spans:
        item, _, begin = documents[document]
        yield Run(rank, item, begin + first, begin + last, at)
        at += last - first


def tokens_on(spec: Module, layout: Layout, task: Task, rank: int) -> list[Span]:
    """What a rank, and with it its whole block of tp, works on: of the task's documents."""
    ranks = partners(layout, task.ranks, rank)
    return dealt(task.lengths, task.split, ranks.index(rank), spec.merged)


def partners(layout: Layout, held: Ranks, rank: int) -> Ranks:
    """Of a group's ranks on one stage, those that share out its tokens with this one: with the same part of tp."""
    if layout.tp == 1:
        return held
    own = coordinates(layout, rank)["tp"]
    return Ranks(other for other in held if coordinates(layout, other)["tp"] == own)
