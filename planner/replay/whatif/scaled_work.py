"""`--scale gemm=0.5`: scales the duration of a class of work, of operations by name, or of the host."""

import re
from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.recording.kernel_classes import COMMUNICATION_CLASSES, KERNEL_CLASSES, kernel_class
from planner.replay.recording.recorded_trace import DeviceOp
from planner.replay.whatif.graph_change import ChangedGraphs, with_op_timings, with_segment_seconds
from planner.replay.whatif.whatif_options import parse_assignment, parse_factor

KERNEL_CLASS_NAMES = {"memcpy", "memset", "other", *(kind for kind, _ in KERNEL_CLASSES)}


def scale_work(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change by class (`gemm`, `host`, `communication`), else by a pattern of names. Raises InputError."""
    name, value = parse_assignment(text, "--scale", "gemm=0.5")
    by = parse_factor(value, "--scale")
    if name == "host":
        return lambda graphs: ChangedGraphs(
            [with_segment_seconds(graph, lambda piece: piece.seconds * by) for graph in graphs],
            f"host time takes {by:g} times as long; waits are simulated",
        )
    chosen = op_filter(name)

    def apply(graphs: Sequence[ExecutionGraph]) -> ChangedGraphs:
        changed, count = [], 0
        for graph in graphs:
            ops = graph.trace.ops
            mine = {i for i, op in enumerate(ops) if chosen(op)}
            count += len(mine)
            changed.append(scale_ops(graph, mine, by))
        if not count:
            kinds = sorted({kernel_class(op.name, op.kind) for graph in graphs for op in graph.trace.ops})
            fix = f"one of {', '.join(kinds)}; host; or a pattern of names" if kinds else "scale host"
            raise InputError(f"the trace has no work of `{name}`", where="--scale", fix=fix)
        return ChangedGraphs(changed, f"{count} operations of {name} take {by:g} times as long, launch order unchanged")

    return apply


def scale_ops(graph: ExecutionGraph, ops: set[int], by: float) -> ExecutionGraph:
    """The graph with the duration of these operations multiplied by `by`."""
    return with_op_timings(graph, lambda i, work: work._replace(seconds=work.seconds * by) if i in ops else work)


def op_filter(name: str) -> Callable[[DeviceOp], bool]:
    """A filter of operations by class or pattern of names. Raises InputError."""
    if name == "communication":
        return lambda op: kernel_class(op.name, op.kind) in COMMUNICATION_CLASSES
    if name in KERNEL_CLASS_NAMES:
        return lambda op: kernel_class(op.name, op.kind) == name
    try:
        pattern = re.compile(name)
    except re.error as error:
        raise InputError(
            f"`{name}` is not a regular expression: {error}", where="--scale", fix="a class of work, or a pattern"
        ) from error
    return lambda op: bool(pattern.search(op.name))
