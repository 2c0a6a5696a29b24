"""Which tokens of a task's items lie on which of its ranks, known to all of them without a message."""

from collections.abc import Iterator
from typing import NamedTuple

from planner.plan.catalogue import sharing
from planner.plan.feeding import merged_tokens
from planner.plan.mesh import coordinates
from planner.plan.model import Layout
from planner.plan.task import Task
from planner.specs.dealing import dealt, share
from planner.specs.model import Module


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
    at, unit = 0, merged_tokens(spec)
    ranks = sharing(layout, task.ranks, rank)
    spans = dealt(task.sizes, task.split, ranks.index(rank), unit)
    tp = layout.mesh.get("tp", 1)
    if tp > 1:
        spans = share(spans, tp, coordinates(layout, rank)["tp"], unit)
    for document, first, last in spans:
        yield Run(rank, task.items[document], first, last, at)
        at += last - first
