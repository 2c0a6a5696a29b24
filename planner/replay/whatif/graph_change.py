"""Changes of execution graphs: other durations of operations and host segments, or fewer dependencies."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.dependencies.host_segments import DependencyKind, HostSegment
from planner.replay.dependencies.op_timing import OpTiming


class ChangedGraphs(NamedTuple):
    """Graphs after a change, and what the change assumes."""

    graphs: list[ExecutionGraph]
    assumed: str
    without: tuple[DependencyKind, ...] = ()  # kinds of dependencies to leave out
    in_order: bool = False  # streams keep their measured order


class GraphChange(NamedTuple):
    """One change, with the option as it was typed."""

    option: str
    apply: Callable[[Sequence[ExecutionGraph]], ChangedGraphs]


def with_op_timings(graph: ExecutionGraph, change: Callable[[int, OpTiming], OpTiming]) -> ExecutionGraph:
    """The graph with changed timings of its device operations; `change` takes number and timing of each."""
    return replace(graph, op_timings=[change(i, work) for i, work in enumerate(graph.op_timings)])


def with_segment_seconds(graph: ExecutionGraph, seconds: Callable[[HostSegment], float]) -> ExecutionGraph:
    """The graph with other durations of its host segments; its dependencies stay."""
    return replace(graph, segments=[replace(piece, seconds=seconds(piece)) for piece in graph.segments])
