"""Changes of execution graphs: other durations of operations and host segments, or fewer dependencies."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from planner.replay.graph import Graph
from planner.replay.pace import Work
from planner.replay.pieces import Kind, Piece


class Changed(NamedTuple):
    """Graphs after a change, and what the change assumes."""

    graphs: list[Graph]
    assumed: str
    without: tuple[Kind, ...] = ()  # kinds of dependencies to leave out
    in_order: bool = False  # streams keep their measured order


class Change(NamedTuple):
    """One change, with the option as it was typed."""

    said: str
    apply: Callable[[Sequence[Graph]], Changed]


def with_work(graph: Graph, change: Callable[[int, Work], Work]) -> Graph:
    """The graph with changed timings of its device operations; `change` takes number and timing of each."""
    return replace(graph, work=[change(i, work) for i, work in enumerate(graph.work)])


def with_pieces(graph: Graph, seconds: Callable[[Piece], float]) -> Graph:
    """The graph with other durations of its host segments; its dependencies stay."""
    return replace(graph, pieces=[replace(piece, seconds=seconds(piece)) for piece in graph.pieces])
