"""Timing of each device operation relative to what released it: gap, launch latency, duration, unexplained time.

The gap from the release of an operation to its start is split into the usual latency of the device (a few microseconds)
and `unseen` time beyond it, which nothing found explains; so unseen time can be left out and its share reported. The
same holds for gaps before operations inside a launched CUDA graph, whose order the trace does not show, and before
operations that were launched before the capture.
"""

from collections import Counter
from statistics import median
from typing import Literal, NamedTuple

from planner.replay.dependencies.host_segments import HostSegment
from planner.replay.dependencies.inter_stream import InterStreamWaits
from planner.replay.dependencies.launches import MAX_DEVICE_GAP, TIME_RESOLUTION
from planner.replay.recording.recorded_trace import RecordedTrace

MIN_LAUNCHES = 3  # of a graph, from which a gap that all have is its own


class OpTiming(NamedTuple):
    """The timing of a device operation as the event clock needs it; seconds."""

    seconds: float
    lead: float  # it occupies its stream this long before it starts
    delay: float  # latency from its launch until it can start
    unseen: float  # further time before it that nothing explains
    launch: HostSegment | None  # the host segment that launches it
    awaits: tuple[int, ...]  # operations of other streams that it waits for
    previous: int  # the operation before it on its stream; −1: the first
    hidden: float = 0.0  # of its lead, what launched graphs do there each time without its being shown


class OpStart(NamedTuple):
    """How an operation started, as measured; seconds."""

    gap: float  # from its release by all that is known
    since_launch: float
    by: Literal["launch", "stream", "graph", "capture"]  # what released it; for the last two the trace does not show it


def time_ops(
    trace: RecordedTrace, queued_at: list[float], launching: list[HostSegment | None], between: InterStreamWaits
) -> list[OpTiming]:
    """Timings of all operations; `queued_at`: when each was queued; `launching`: the segment that launched it."""
    timings: list[OpTiming] = []
    begun: list[OpStart] = []
    ends = [0.0] * len(trace.streams)
    last = [-1] * len(trace.streams)
    for i, op in enumerate(trace.ops):
        before, after = ends[op.stream], last[op.stream]
        start = max(op.start, before)
        queued = queued_at[i] if launching[i] else -1.0
        begun.append(op_start(trace, between, i, after, (queued, before, start)))
        awaits = tuple(between.awaited_ops.get(i, ()))
        timings.append(OpTiming(max(0.0, op.end - start), 0.0, 0.0, 0.0, launching[i], awaits, after))
        ends[op.stream], last[op.stream] = max(before, op.end), i
    latency = median_or_zero([each.gap for each in begun if each.by == "launch" and each.gap <= MAX_DEVICE_GAP])
    begun = [
        each._replace(by="launch") if each.by == "stream" and each.since_launch <= latency + TIME_RESOLUTION else each
        for each in begun
    ]
    stream_gap = median_or_zero([each.gap for each in begun if each.by == "stream" and each.gap <= MAX_DEVICE_GAP])
    split = [split_gap(work, each, latency, stream_gap) for work, each in zip(timings, begun, strict=True)]
    return within_graphs(trace, between, split)


def within_graphs(trace: RecordedTrace, between: InterStreamWaits, timings: list[OpTiming]) -> list[OpTiming]:
    """Timings in which gaps next to a launched graph's operations are its own as far as its other launches have them.

    The device runs a graph by itself, so such a gap is no wait for the host: it is work that the profiler does not
    show, if it is there at other launches, too. A gap is taken for work as far as two others at its place are as long,
    between operations of the same names and numbers in their launches; so none explains itself.
    """
    of_graph = [call >= 0 and "GraphLaunch" in trace.calls[call].name for call in between.launching_call]
    places: dict[tuple[str, str, int, int], list[int]] = {}
    launched = Counter[int]()
    number = []
    for i, call in enumerate(between.launching_call):
        launched[call] += 1
        number.append(launched[call])
        before = timings[i].previous
        if before >= 0 and (of_graph[i] or of_graph[before]):
            place = (trace.ops[before].name, trace.ops[i].name, number[before], number[i])
            places.setdefault(place, []).append(i)
    found = [*timings]
    for ops in places.values():
        longest = sorted((timings[i].unseen for i in ops), reverse=True)
        for i in ops if len(ops) >= MIN_LAUNCHES and longest[0] > 0 else ():
            as_long = longest[2] if timings[i].unseen >= longest[1] else longest[1]
            hidden = min(as_long, timings[i].unseen)
            found[i] = timings[i]._replace(
                hidden=hidden, lead=timings[i].lead + hidden, unseen=timings[i].unseen - hidden
            )
    return found


def median_or_zero(values: list[float]) -> float:
    """The median; 0 of nothing."""
    return median(values) if values else 0.0


def op_start(
    trace: RecordedTrace, between: InterStreamWaits, op: int, after: int, times: tuple[float, float, float]
) -> OpStart:
    """How an operation started; `after`: its predecessor; `times`: queued, end of the predecessor, start."""
    queued, before, start = times
    call = between.launching_call[op]
    of_graph = call >= 0 and "GraphLaunch" in trace.calls[call].name
    follows = after >= 0 and trace.ops[after].correlation == trace.ops[op].correlation
    ready, gap = ready_and_gap(trace, between, op, max(queued, before), start)
    if gap > MAX_DEVICE_GAP and not (of_graph and follows) and between.find_by_time(op):
        ready, gap = ready_and_gap(trace, between, op, max(queued, before), start)
    if queued < 0:
        return OpStart(gap, float("inf"), "graph" if after >= 0 else "capture")
    if ready <= queued:
        return OpStart(gap, start - queued, "launch")
    return OpStart(gap, start - queued, "graph" if of_graph else "stream")


def ready_and_gap(
    trace: RecordedTrace, between: InterStreamWaits, op: int, ready: float, begun: float
) -> tuple[float, float]:
    """When all that is known had released an operation, and the gap from then to its start, in seconds."""
    for awaited in between.awaited_ops.get(op, ()):
        ready = max(ready, trace.ops[awaited].end)
    return ready, max(0.0, begun - ready)


def split_gap(work: OpTiming, begun: OpStart, latency: float, stream_gap: float) -> OpTiming:
    """Split the gap before an operation into lead on its stream, launch latency and unseen time.

    `latency`: median gap after a launch; `stream_gap`: median gap after the previous operation of a stream; seconds.
    """
    gap = begun.gap
    if begun.by == "capture":
        return work._replace(unseen=gap)
    if begun.by == "graph":
        lead = gap if gap <= MAX_DEVICE_GAP else min(gap, stream_gap)
        return work._replace(lead=lead, unseen=gap - lead)
    if begun.by == "launch":
        unseen = gap - latency if gap > max(MAX_DEVICE_GAP, latency) else 0.0
        lead = min(gap - unseen, stream_gap)
        return work._replace(lead=lead, delay=begun.since_launch - unseen - lead, unseen=unseen)
    lead = gap if gap <= MAX_DEVICE_GAP else min(gap, stream_gap)
    delay = max(0.0, min(latency, begun.since_launch - gap))
    return work._replace(lead=lead, delay=delay, unseen=gap - lead)
