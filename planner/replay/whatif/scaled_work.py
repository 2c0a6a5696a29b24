"""What-ifs that scale durations; kernels are assumed to sustain their measured rates.

`--scale gemm=0.5`: of a class of work, of operations by name, or of the host.

`--bandwidth 2x`: of communication. The latency of a collective cannot be identified from a trace that has each size
once, so it is divided too: where messages are small the gain is overstated. With one rank only, the time its
collectives wait for others is divided too.

`--set dp=4`: another number of data-parallel ranks. In a ring of n ranks each sends (n − 1)/n of a message, twice for
an all-reduce; durations scale by the ratio of that, new to old. The old number is the world size. All all-reduce,
reduce-scatter and all-gather operations are assumed to be data-parallel.

`--set hidden=2x`: that many times the hidden size, at the same head size; `--set batch=2x`: that many times the samples
of each rank. Each class of work scales with a power of these. The host's time stays; where no device is recorded, its
operators are the work, and scale beyond what calling one takes.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.dependencies.host_segments import HostSegment
from planner.replay.recording.recorded_names import COMMUNICATION_CLASSES, KERNEL_CLASSES, kernel_class
from planner.replay.recording.recorded_trace import DeviceOp
from planner.replay.timing.host_time import HostTime
from planner.replay.whatif.graph_change import (
    ChangedGraphs,
    on_host_alone,
    optimizer_spans,
    parse_assignment,
    parse_factor,
    with_op_timings,
    with_segment_seconds,
)
from planner.units import US

KERNEL_CLASS_NAMES = {"memcpy", "memset", "other", *(kind for kind, _ in KERNEL_CLASSES)}
OPERATOR = re.compile(r"(aten|quantized|mkldnn|torch\w*)::")
PRODUCT = re.compile(r"::(mm|addmm|bmm|baddbmm|linear|mkldnn_linear|_addmm_activation)$")
CALLING = 5 * US  # of an operator on few elements, while it is recorded: median on one core of an AMD EPYC
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
    "other": 1,
}
PARAMETERS = ("optimizer", *COMMUNICATION_CLASSES)
BATCH_POWERS = {kind: int(kind not in PARAMETERS or kind == "send/recv") for kind in WIDTH_POWERS}


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

    def nothing(graphs: Sequence[ExecutionGraph]) -> InputError:
        kinds = sorted({kernel_class(op.name, op.kind) for graph in graphs for op in graph.trace.ops})
        fix = f"one of {', '.join(kinds)}; host; or a pattern of names" if kinds else "scale host"
        return InputError(f"the trace has no work of `{name}`", where="--scale", fix=fix)

    what = f"operations of {name} take {by:g} times as long, launch order unchanged"
    return lambda graphs: scale_chosen(graphs, chosen, by, what, nothing(graphs))


def scale_chosen(
    graphs: Sequence[ExecutionGraph], chosen: Callable[[DeviceOp], bool], by: float, what: str, nothing: InputError
) -> ChangedGraphs:
    """The graphs with some operations taking `by` times as long; `what`: they assume. Raises `nothing` without any."""
    mine = [{i for i, op in enumerate(graph.trace.ops) if chosen(op)} for graph in graphs]
    count = sum(map(len, mine))
    if not count:
        raise nothing
    return ChangedGraphs([scale_ops(*each, by) for each in zip(graphs, mine, strict=True)], f"{count} {what}")


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
    nothing = InputError("the trace has no communication", where="--bandwidth", fix="leave it out")
    what = f"communication operations take 1/{by:g} of their time, latency included"
    return lambda graphs: scale_chosen(graphs, op_filter("communication"), 1 / by, what, nothing)


def change_data_parallel(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change to another number of data-parallel ranks. Raises InputError."""
    ranks = int(text) if text.isdecimal() and len(text) < 8 else 0
    if not 1 <= ranks <= MAX_RANKS:
        raise InputError(f"`{text}` is not a number of ranks", where="--set dp", fix=f"from 1 to {MAX_RANKS}")

    def apply(graphs: Sequence[ExecutionGraph]) -> ChangedGraphs:
        old = graphs[0].trace.world_size or 0
        message = "no all-reduce, reduce-scatter or all-gather of several ranks is in the trace"
        nothing = InputError(message, where="--set dp", fix="give a trace of a data-parallel job")
        if old < 2:
            raise nothing
        by = (1 - 1 / ranks) / (1 - 1 / old)
        what = f"collectives take {by:.3f} times as long, as on a ring of {ranks} ranks instead of {old}"
        assumed = "every all-reduce, reduce-scatter and all-gather is assumed to be data-parallel"
        whole = f"{what}, over the same links; {assumed}; each rank's own work is as before"
        return scale_chosen(graphs, in_ring, by, whole, nothing)

    def in_ring(op: DeviceOp) -> bool:
        return kernel_class(op.name, op.kind) in RING_COLLECTIVES

    return apply


def change_hidden_size(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change to a multiple of the hidden size. Raises InputError."""
    what = "matrix products, convolutions, the optimizer and collectives of parameters by its square, the rest linearly"
    return change_by_powers("hidden", text, WIDTH_POWERS, what)


def change_batch_size(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change to a multiple of the samples of each rank. Raises InputError."""
    what = "all work in proportion, but the optimizer and collectives of parameters not at all"
    return change_by_powers("batch", text, BATCH_POWERS, what)


def change_by_powers(
    name: str, text: str, powers: dict[str, int], what: str
) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change of all work by powers of a factor, by class. Raises InputError."""
    by = parse_factor(text, f"--set {name}")
    host = "copies and the host not at all"
    on_host = "of a host without a device: its operators alike, beyond what calling one takes"

    def apply(graphs: Sequence[ExecutionGraph]) -> ChangedGraphs:
        changed = []
        for graph in graphs:
            mine = [powers.get(kernel_class(op.name, op.kind), 0) for op in graph.trace.ops]
            scaled = with_op_timings(graph, lambda i, work, p=mine: work._replace(seconds=work.seconds * by ** p[i]))  # type: ignore[misc]
            changed.append(scaled_operators(scaled, by, powers) if on_host_alone(graph) else scaled)
        rest = on_host if all(map(on_host_alone, graphs)) else host
        return ChangedGraphs(changed, f"{what}; {rest}; at the rates measured")

    return apply


def scaled_operators(graph: ExecutionGraph, by: float, powers: dict[str, int]) -> ExecutionGraph:
    """The graph whose host does all the work, with its operators' own time scaled by powers of a factor."""
    times = HostTime(graph)
    updates: dict[int, list[tuple[float, float]]] = {}
    for thread, begin, end in sorted(optimizer_spans(graph)):
        updates.setdefault(thread, []).append((begin, end))

    def scaled(piece: HostSegment) -> float:
        total, at = 0.0, piece.end - piece.seconds - piece.unseen
        spans = updates.get(piece.thread, [])
        for name, seconds in times.within(piece.thread, at, piece.end):
            update = spans[max(0, bisect_right(spans, (at, float("inf"))) - 1)] if spans else (0.0, 0.0)
            kind = "optimizer" if update[0] <= at < update[1] else operator_class(name)
            at += seconds
            power = powers.get(kind, 0) if seconds > CALLING else 0
            total += CALLING + (seconds - CALLING) * by**power if power else seconds
        return max(0.0, total - piece.unseen)

    return with_segment_seconds(graph, scaled)


@lru_cache(maxsize=10_000)
def operator_class(name: str) -> str:
    """The class of work of an operator of the host; "": a span of the host's own."""
    if not OPERATOR.match(name):
        return ""
    return "gemm" if PRODUCT.search(name) else kernel_class(name.replace("scaled_dot_product", "attention"))
