"""What-ifs as they are typed (`gemm=0.5`, `2x`, `layers=2x`), and as changes of execution graphs: other durations of
operations and host segments.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph, with_op_timings
from planner.replay.dependencies.host_segments import HostSegment

FACTOR = re.compile(r"(\d+(?:\.\d*)?|\.\d+)x?")
MIN_FACTOR, MAX_FACTOR = 1e-3, 1e3


class WhatIfOptions(NamedTuple):
    """The options of `planner replay` that change something, as typed."""

    scale: tuple[str, ...] = ()
    bandwidth: str | None = None
    settings: tuple[str, ...] = ()


def parse_factor(text: str, where: str) -> float:
    """Parse `2x` or `0.5`; `where`: the option, for errors. Raises InputError."""
    found = FACTOR.fullmatch(text.strip())
    value = float(found.group(1)) if found else 0.0
    if not MIN_FACTOR <= value <= MAX_FACTOR:
        fix = f"a number from {MIN_FACTOR:g} to {MAX_FACTOR:g}, such as 2x or 0.5"
        raise InputError(f"`{text}` is not a factor", where=where, fix=fix)
    return value


def parse_assignment(text: str, where: str, example: str) -> tuple[str, str]:
    """Split `gemm=0.5` into ("gemm", "0.5"); the name may contain equals signs. Raises InputError."""
    name, equals, value = text.rpartition("=")
    if not (name and equals and value):
        raise InputError(f"`{text}` is not of the form NAME=VALUE", where=where, fix=f"as in {where} {example}")
    return name, value


class ChangedGraphs(NamedTuple):
    """Graphs after a change, and what the change assumes."""

    graphs: list[ExecutionGraph]
    assumed: str


class GraphChange(NamedTuple):
    """One change, with the option as it was typed."""

    option: str
    apply: Callable[[Sequence[ExecutionGraph]], ChangedGraphs]


def on_host_alone(graph: ExecutionGraph) -> bool:
    """Whether the host's threads do all the work: no device is recorded."""
    return all(op.kind == "collective" for op in graph.trace.ops)


def optimizer_spans(graph: ExecutionGraph) -> list[tuple[int, float, float]]:
    """Thread, begin and end of the optimizer's step and zero_grad, by torch's annotations."""
    host = graph.trace.host
    mine = np.array([name.startswith("Optimizer.") for name in host.names], dtype=np.bool_)
    chosen = mine[host.name] if len(host.names) else host.annotation
    return [*zip(host.thread[chosen].tolist(), host.start[chosen].tolist(), host.end[chosen].tolist(), strict=True)]


def with_segment_seconds(graph: ExecutionGraph, seconds: Callable[[HostSegment], float]) -> ExecutionGraph:
    """The graph with other durations of its host segments; its dependencies stay."""
    return replace(graph, segments=[replace(piece, seconds=seconds(piece)) for piece in graph.segments])


__all__ = [
    "ChangedGraphs",
    "GraphChange",
    "WhatIfOptions",
    "on_host_alone",
    "optimizer_spans",
    "parse_assignment",
    "parse_factor",
    "with_op_timings",
    "with_segment_seconds",
]
