"""`--set layers=2x`: a model with that many times the layers, which are found as the periodic part of the kernels'
sequence.

In the names of kernels (of operators where there is no device) in launch order, a period is looked for that repeats and
contains a matrix product, an attention or a convolution. The forward pass is one such region, the backward pass
another, with as many layers or one fewer, since the first or last layer may differ.

A region with m of the model's n layers becomes (m + (f − 1)·n) / m times as long with f times the layers, on the host
and on the device, as if copies of it followed one another with the same launches and waits. The optimizer becomes f
times as long, as parameters do.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph, GraphStep
from planner.replay.dependencies.host_segments import HostSegment
from planner.replay.dependencies.op_timing import OpTiming
from planner.replay.recording.recorded_names import kernel_class
from planner.replay.whatif.graph_change import (
    ChangedGraphs,
    on_host_alone,
    optimizer_spans,
    parse_factor,
    with_op_timings,
    with_segment_seconds,
)

LAYER_CLASSES = {"gemm", "attention", "convolution"}
LAYER_OPERATORS = (
    "aten::linear", "aten::addmm", "aten::mm", "aten::bmm", "aten::conv", "aten::scaled_dot", "Addmm", "Mm", "Bmm",
    "Convolution",
)  # fmt: skip
MIN_PERIOD = 2  # operations in a period
PERIOD_TOLERANCE = 0.95  # a shorter period may cover this share of what the best one covers
MIN_STRETCH_SHARE = 0.1  # least share of a step's sequence that one region covers
MIN_COVERED_SHARE = 0.4  # least share that all regions cover together


class SequenceItem(NamedTuple):
    """An entry of the sequence; on the host it runs from `begin` to `end` seconds."""

    name: str
    thread: int
    begin: float
    end: float
    heavy: bool


class LayerRegion(NamedTuple):
    """A time span of a host thread, in seconds, that contains a number of layers."""

    thread: int
    begin: float
    end: float
    layers: int


def find_layers(graph: ExecutionGraph, step: GraphStep) -> list[LayerRegion]:
    """The regions of one step; empty when no sequence repeats."""
    sequence = operator_sequence(graph, step) if on_host_alone(graph) else launched_sequence(graph, step)
    names = {name: i for i, name in enumerate(dict.fromkeys(item.name for item in sequence))}
    codes = np.array([names[item.name] for item in sequence], dtype=np.int64)
    heavy = np.array([item.heavy for item in sequence], dtype=np.bool_)
    runs = [*periodic_runs(codes, heavy, 0, len(codes), MIN_STRETCH_SHARE * len(codes))]
    if sum(period * times for _, period, times in runs) < MIN_COVERED_SHARE * len(codes):
        return []
    found: list[LayerRegion] = []
    for first, period, times in runs:
        stretch = sequence[first : first + period * times]
        if len({item.thread for item in stretch}) == 1:
            found.append(LayerRegion(stretch[0].thread, stretch[0].begin, stretch[-1].end, times))
    most = max((region.layers for region in found), default=0)
    return sorted(region for region in found if region.layers >= most - 1)


def periodic_runs(
    codes: np.ndarray, heavy: np.ndarray, low: int, high: int, least: float
) -> Iterator[tuple[int, int, int]]:
    """Start, period and repetitions of all runs of at least so many entries between two places. Where what repeats is
    mostly made of repetitions itself, as micro-batches are of layers, those are meant.
    """
    first, period, times = best_period(codes[low:high], heavy[low:high])
    if times < 2 or period * times < least:
        return
    first += low
    inner = [
        [*periodic_runs(codes, heavy, begin, begin + period, least / times)]
        for begin in range(first, first + period * times, period)
    ]
    if all(sum(p * n for _, p, n in each) >= MIN_COVERED_SHARE * period for each in inner):
        for each in inner:
            yield from each
    else:
        yield first, period, times
    yield from periodic_runs(codes, heavy, low, first, least)
    yield from periodic_runs(codes, heavy, first + period * times, high, least)


def best_period(codes: np.ndarray, heavy: np.ndarray) -> tuple[int, int, int]:
    """Start, period and repetitions of the periodic run that covers most; of nearly equal ones, the shortest period.

    `codes`: names as integers; `heavy`: whether they contain layer work; both (sequence,).
    """
    found: list[tuple[int, int, int]] = []
    for period in range(MIN_PERIOD, len(codes) // 2 + 1):
        first, length = longest_run(codes[:-period] == codes[period:])
        times = (length + period) // period
        if times >= 2 and heavy[first : first + period].any() and len(np.unique(codes[first : first + period])) > 1:
            found.append((first, period, times))
    most = max((period * times for _, period, times in found), default=0)
    return next(((f, p, t) for f, p, t in found if p * t >= PERIOD_TOLERANCE * most), (0, 0, 0))


def longest_run(same: np.ndarray) -> tuple[int, int]:
    """Start and length of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins):
        return 0, 0
    run = int(np.argmax(ends - begins))
    return int(begins[run]), int(ends[run] - begins[run])


def launched_sequence(graph: ExecutionGraph, step: GraphStep) -> list[SequenceItem]:
    """Operations that a step launches on its main stream, in launch order."""
    pieces = [work.launch for work in graph.op_timings]
    begin, end = step.begin.segment.end, step.end.segment.end
    mine = [i for i, piece in enumerate(pieces) if piece is not None and begin < piece.end <= end]
    counts = np.bincount([graph.trace.ops[i].stream for i in mine], minlength=1)
    items = []
    for i in mine:
        op, piece = graph.trace.ops[i], pieces[i]
        if piece is not None and op.stream == int(np.argmax(counts)):
            kind = kernel_class(op.name, op.kind)
            items.append(SequenceItem(op.name, piece.thread, piece.start, piece.end, kind in LAYER_CLASSES))
    return items


def operator_sequence(graph: ExecutionGraph, step: GraphStep) -> list[SequenceItem]:
    """Outermost operators of a step on the thread with most of them, without the optimizer's."""
    host = graph.trace.host
    updates = optimizer_spans(graph)
    items: list[SequenceItem] = []
    thread, until = -1, 0.0
    spans = zip(host.thread.tolist(), host.start.tolist(), host.end.tolist(), host.name.tolist(), strict=True)
    for (where, begin, end, name), annotation in zip(spans, host.annotation.tolist(), strict=True):
        if annotation or begin < step.begin.segment.end or end > step.end.segment.end:
            continue
        if any(thread_of == where and first <= begin < last for thread_of, first, last in updates):
            continue
        if where != thread:
            thread, until = where, 0.0
        if begin >= until:
            until = end
            items.append(
                SequenceItem(host.names[name], where, begin, end, any(o in host.names[name] for o in LAYER_OPERATORS))
            )
    counts = np.bincount([item.thread for item in items], minlength=1)
    return [item for item in items if item.thread == int(np.argmax(counts))]


def region_at(regions: Sequence[LayerRegion], time: float) -> LayerRegion | None:
    """The region that contains the end of a host segment; `regions`: those of its thread, in order of their start."""
    i = bisect_left(regions, time, key=lambda region: region.begin) - 1
    return regions[i] if i >= 0 and time <= regions[i].end else None


def change_layers(text: str) -> Callable[[Sequence[ExecutionGraph]], ChangedGraphs]:
    """A change to a multiple of the layers. Raises InputError."""
    by = parse_factor(text, "--set layers")

    def apply(graphs: Sequence[ExecutionGraph]) -> ChangedGraphs:
        changed, counts = [], set()
        for graph in graphs:
            regions = layer_regions(graph)
            counts |= {max(region.layers for region in each) for each in regions}
            changed.append(stretch_regions(graph, regions, by))
        layer_count = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
        return ChangedGraphs(
            changed,
            f"{layer_count} layers were found as a repeated sequence; each of {by:g} times as many takes as long",
        )

    return apply


def layer_regions(graph: ExecutionGraph) -> list[list[LayerRegion]]:
    """Regions of layers in each step. Raises InputError when no sequence repeats."""
    regions = [find_layers(graph, step) for step in graph.steps]
    if not regions or not all(regions):
        message = "the layers of the model cannot be identified: no sequence with a matrix product repeats in a step"
        raise InputError(message, where=graph.trace.source, fix="use --scale instead")
    return regions


def stretch_regions(graph: ExecutionGraph, regions: Sequence[Sequence[LayerRegion]], by: float) -> ExecutionGraph:
    """The graph with regions of layers and of the optimizer stretched for `by` times the layers."""
    growth: dict[LayerRegion, float] = {}
    for step in regions:
        layers_of_model = max(region.layers for region in step)
        growth |= {region: (region.layers + (by - 1) * layers_of_model) / region.layers for region in step}
    growth |= {LayerRegion(*span, 0): by for span in optimizer_spans(graph)}
    by_thread: dict[int, list[LayerRegion]] = {}
    for region in sorted(growth):
        by_thread.setdefault(region.thread, []).append(region)

    def seconds(segment: HostSegment) -> float:
        begin = segment.end - segment.seconds
        added = (
            max(0.0, min(region.end, segment.end) - max(region.begin, begin)) * (growth[region] - 1)
            for region in by_thread.get(segment.thread, [])
        )
        return max(0.0, segment.seconds + sum(added))

    def work(i: int, each: OpTiming) -> OpTiming:
        op = graph.trace.ops[i]
        region = region_at(by_thread.get(each.launch.thread, []), each.launch.end) if each.launch else None
        factor = growth[region] if region else by if kernel_class(op.name, op.kind) == "optimizer" else 1.0
        return each._replace(seconds=max(0.0, each.seconds * factor), lead=max(0.0, each.lead * factor))

    return with_op_timings(with_segment_seconds(graph, seconds), work)
