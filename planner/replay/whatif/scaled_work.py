"""What-ifs that scale durations; kernels are assumed to sustain their measured rates.

`--scale gemm=0.5`: of a class of work, of operations by name, or of the host.

`--bandwidth 2x`: of communication. The latency of a collective cannot be identified from a trace that has each size
once, so it is divided too: where messages are small the gain is overstated. With one rank only, the time its
collectives wait for others is divided too.

`--set dp=4`: another number of data-parallel ranks. In a ring of n ranks each sends (n − 1)/n of a message, twice for
an all-reduce; durations scale by the ratio of that, new to old. The old number is the world size. All all-reduce,
reduce-scatter and all-gather operations are assumed to be data-parallel.

`--set hidden=2x`: that many times the hidden size, at the same head size. Each class of work scales with a power of the
hidden size, and host time stays.
"""

import re
from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.recording.recorded_names import COMMUNICATION_CLASSES, KERNEL_CLASSES, kernel_class
from planner.replay.recording.recorded_trace import DeviceOp
from planner.replay.whatif.graph_change import (
    ChangedGraphs,
    parse_assignment,
    parse_factor,
    with_op_timings,
    with_segment_seconds,
)

KERNEL_CLASS_NAMES = {"memcpy", "memset", "other", *(kind for kind, _ in KERNEL_CLASSES)}
RING_COLLECTIVES = {"all-reduce", "reduce-scatter", "all-gather"}
MAX_RANKS = 1_000_000
WIDTH_POWERS = {
    "gemm": 2,  # tokens · hidden · hidden
    "convolution": 2,  # channels in and out
    "optimizer": 2,  # parameters
    "all-reduce": 2,  # gradients
    "reduce-scatter": 2,  # gradients
    "all-gather": 2,  # parameters
    "broadcast": 2,  # parameters
    "reduce": 2,  # gradients
    "attention": 1,  # tokens² · hidden
    "send/recv": 1,  # activations
    "elementwise": 1,  # activations
    "normalisation": 1,
    "reduction": 1,
    "embedding": 1,
}


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


def change_bandwidth(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change that divides the duration of all communication by a factor. Raises InputError."""
    by = parse_factor(text, "--bandwidth")
    chosen = op_filter("communication")

    def apply(graphs: Sequence[ExecutionGraph]) -> ChangedGraphs:
        mine = [{i for i, op in enumerate(graph.trace.ops) if chosen(op)} for graph in graphs]
        count = sum(map(len, mine))
        if not count:
            raise InputError("the trace has no communication", where="--bandwidth", fix="leave it out")
        changed = [scale_ops(graph, ops, 1 / by) for graph, ops in zip(graphs, mine, strict=True)]
        return ChangedGraphs(changed, f"{count} communication operations take 1/{by:g} of their time, latency included")

    return apply


def change_data_parallel(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change to another number of data-parallel ranks. Raises InputError."""
    ranks = int(text) if text.isdecimal() and len(text) < 8 else 0
    if not 1 <= ranks <= MAX_RANKS:
        raise InputError(f"`{text}` is not a number of ranks", where="--set dp", fix=f"from 1 to {MAX_RANKS}")

    def apply(graphs: Sequence[ExecutionGraph]) -> ChangedGraphs:
        old = graphs[0].trace.world_size or 0
        mine = [
            {i for i, op in enumerate(graph.trace.ops) if kernel_class(op.name, op.kind) in RING_COLLECTIVES}
            for graph in graphs
        ]
        count = sum(map(len, mine))
        if old < 2 or not count:
            message = "no all-reduce, reduce-scatter or all-gather of several ranks is in the trace"
            raise InputError(message, where="--set dp", fix="give a trace of a data-parallel job")
        by = (1 - 1 / ranks) / (1 - 1 / old)
        changed = [scale_ops(graph, ops, by) for graph, ops in zip(graphs, mine, strict=True)]
        what = f"{count} collectives take {by:.3f} times as long, as on a ring of {ranks} ranks instead of {old}"
        assumption = "every all-reduce, reduce-scatter and all-gather is assumed to be data-parallel"
        return ChangedGraphs(changed, f"{what}, over the same links; {assumption}; each rank's own work is as before")

    return apply


def change_hidden_size(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change to a multiple of the hidden size. Raises InputError."""
    by = parse_factor(text, "--set hidden")

    def apply(graphs: Sequence[ExecutionGraph]) -> ChangedGraphs:
        if not any(graph.op_timings for graph in graphs):
            fix = "record with the device's activities, or use --scale host"
            raise InputError("the trace has no work of a device", where="--set hidden", fix=fix)
        changed = []
        for graph in graphs:
            powers = [WIDTH_POWERS.get(kernel_class(op.name, op.kind), 0) for op in graph.trace.ops]
            changed.append(
                with_op_timings(graph, lambda i, work, p=powers: work._replace(seconds=work.seconds * by ** p[i]))  # type: ignore[misc]
            )
        what = (
            "matrix products, convolutions, the optimizer and collectives of parameters by its square, the rest of the"
        )
        return ChangedGraphs(
            changed, f"{what} device's work linearly, copies and the host not at all, at the rates measured"
        )

    return apply
