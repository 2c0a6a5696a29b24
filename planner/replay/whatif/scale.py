"""`--scale gemm=0.5`: scales the duration of a class of work, of operations by name, or of the host."""

import re
from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.replay.classes import COMMUNICATION, TABLE, kernel_class
from planner.replay.graph import Graph
from planner.replay.trace import Op
from planner.replay.whatif.asked import factor, pair
from planner.replay.whatif.change import Changed, with_pieces, with_work

KINDS = {"memcpy", "memset", "other", *(kind for kind, _ in TABLE)}


def scale(text: str) -> Callable[[Sequence[Graph]], Changed]:
    """A change by class (`gemm`; `communication`: all of it; `host`), else by a pattern of names. Raises InputError."""
    name, value = pair(text, "--scale", "gemm=0.5")
    by = factor(value, "--scale")
    if name == "host":
        return lambda graphs: Changed(
            [with_pieces(graph, lambda piece: piece.seconds * by) for graph in graphs],
            f"host time takes {by:g} times as long; waits are simulated",
        )
    chosen = chooser(name)

    def apply(graphs: Sequence[Graph]) -> Changed:
        changed, count = [], 0
        for graph in graphs:
            ops = graph.trace.ops
            mine = {i for i, op in enumerate(ops) if chosen(op)}
            count += len(mine)
            changed.append(scaled(graph, mine, by))
        if not count:
            kinds = sorted({kernel_class(op.name, op.kind) for graph in graphs for op in graph.trace.ops})
            fix = f"one of {', '.join(kinds)}; host; or a pattern of names" if kinds else "scale host"
            raise InputError(f"the trace has no work of `{name}`", where="--scale", fix=fix)
        return Changed(changed, f"{count} operations of {name} take {by:g} times as long, launch order unchanged")

    return apply


def scaled(graph: Graph, ops: set[int], by: float) -> Graph:
    """The graph with the duration of these operations multiplied by `by`."""
    return with_work(graph, lambda i, work: work._replace(seconds=work.seconds * by) if i in ops else work)


def chooser(name: str) -> Callable[[Op], bool]:
    """A filter of operations by class or pattern of names. Raises InputError."""
    if name == "communication":
        return lambda op: kernel_class(op.name, op.kind) in COMMUNICATION
    if name in KINDS:
        return lambda op: kernel_class(op.name, op.kind) == name
    try:
        pattern = re.compile(name)
    except re.error as error:
        raise InputError(
            f"`{name}` is not a regular expression: {error}", where="--scale", fix="a class of work, or a pattern"
        ) from error
    return lambda op: bool(pattern.search(op.name))
