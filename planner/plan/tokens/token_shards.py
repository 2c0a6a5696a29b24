"""Which tokens of a task's items each of its ranks holds; every rank derives it without communication."""

from collections.abc import Iterator
from typing import NamedTuple

from planner.plan.mesh.rank_mesh import coordinates, places_along
from planner.plan.plan_file import Layout
from planner.plan.task import Task
from planner.specs.base import Ranks
from planner.specs.layers import Module
from planner.specs.sequence_sharding import Span, even_share, rank_spans


class TokenRun(NamedTuple):
    """Consecutive tokens of one item between layers: rows `at`… of a rank's activations (tokens, hidden)."""

    rank: int
    item: int
    first: int
    last: int  # the one after
    row: int


def token_runs(spec: Module, layout: Layout, task: Task) -> list[TokenRun]:
    """Return the tokens that all ranks of a forward hold between layers, rank by rank in the order of their rows."""
    return [run for rank in task.ranks for run in rank_token_runs(spec, layout, task, rank)]


def rank_token_runs(spec: Module, layout: Layout, task: Task, rank: int) -> Iterator[TokenRun]:
    """Yield the tokens that one rank holds between layers, in the order of their rows: its tp shard of its spans."""
    at, unit, tp, documents = 0, spec.tokens_per_output, layout.tp, task.documents
    spans = rank_token_spans(spec, layout, task, rank)
    if tp > 1:
        spans = even_share(spans, tp, coordinates(layout, rank)["tp"], unit)
    for document, first, last in spans:
        item, _, begin = documents[document]
        yield TokenRun(rank, item, begin + first, begin + last, at)
        at += last - first


def rank_token_spans(spec: Module, layout: Layout, task: Task, rank: int) -> list[Span]:
    """Return the spans of the task's documents that a rank works on; the ranks of a tp group have the same."""
    ranks = sharing_ranks(layout, task.ranks, rank)
    return rank_spans(task.lengths, task.split, ranks.index(rank), spec.tokens_per_output, bool(task.parts))


def sharing_ranks(layout: Layout, held: Ranks, rank: int) -> Ranks:
    """Return those of a group's ranks on one stage that tokens are sharded over with `rank`: of the same tp index."""
    if layout.tp == 1:
        return held
    (own,) = places_along(layout, "tp", [rank])
    return Ranks(other for other, at in zip(held, places_along(layout, "tp", held), strict=True) if at == own)
