"""A change of what is replayed: other seconds for work and pieces, or dependencies less; never other measurements."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from planner.replay.graph import Graph
from planner.replay.pace import Work
from planner.replay.pieces import Kind, Piece


class Changed(NamedTuple):
    """Graphs after a change, and what was assumed."""

    graphs: list[Graph]
    assumed: str
    without: tuple[Kind, ...] = ()
    in_order: bool = False  # streams keep the order that they had


class Change(NamedTuple):
    """One of what was asked, as it was typed."""

    said: str
    apply: Callable[[Sequence[Graph]], Changed]


def with_work(graph: Graph, change: Callable[[int, Work], Work]) -> Graph:
    """The graph, its device's operations changed one by one."""
    return replace(graph, work=[change(i, work) for i, work in enumerate(graph.work)])


def with_pieces(graph: Graph, seconds: Callable[[Piece], float]) -> Graph:
    """The graph with other seconds for the pieces of its threads; who waits for whom is as before."""
    return replace(graph, pieces=[replace(piece, seconds=seconds(piece)) for piece in graph.pieces])
