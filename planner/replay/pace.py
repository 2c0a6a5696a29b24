"""What every operation of the device takes, from what had let it begin: its own pace, and what nothing explains.

What a trace shows but nothing explains is kept apart: the device's own pace (a few microseconds from what lets an
operation begin until it does), and beyond it `unseen` time, so that it can be left out and its share be said. So it is
with what lies before operations of a launched graph, whose order the trace does not show, and before those that were
launched before the capture.
"""

from statistics import median
from typing import Literal, NamedTuple

from planner.replay.inter_stream import LATE, InterStream
from planner.replay.launches import EXACT
from planner.replay.pieces import Piece
from planner.replay.trace import Trace


class Work(NamedTuple):
    """An operation of the device, as the clock needs it."""

    seconds: float
    lead: float  # on its stream before it begins: from the end of the one before, or of what it waited for
    delay: float  # from its launch until it can begin
    unseen: float  # more of either that nothing explains
    launch: Piece | None
    awaits: tuple[int, ...]  # operations of other streams
    after: int  # the operation before it on its stream; −1: the first


class Beginning(NamedTuple):
    """How an operation began, as measured."""

    gap: float  # since all that is known had let it
    since_launch: float
    by: Literal[
        "launch", "stream", "graph", "capture"
    ]  # what it waited for last; of the last two the trace says nothing


def timed(trace: Trace, at: list[float], pieces: list[Piece | None], between: InterStream) -> list[Work]:
    """What every operation takes, from what had let it begin."""
    made: list[Work] = []
    begun: list[Beginning] = []
    ends = [0.0] * len(trace.streams)
    last = [-1] * len(trace.streams)
    for i, op in enumerate(trace.ops):
        before, after = ends[op.stream], last[op.stream]
        start = max(op.start, before)
        begun.append(beginning(trace, between, i, after, (at[i] if pieces[i] else 0.0, before, start)))
        awaits = tuple(between.awaits.get(i, ()))
        made.append(Work(max(0.0, op.end - start), 0.0, 0.0, 0.0, pieces[i], awaits, after))
        ends[op.stream], last[op.stream] = max(before, op.end), i
    latency = middle([each.gap for each in begun if each.by == "launch" and each.gap <= LATE])
    begun = [
        each._replace(by="launch") if each.by == "stream" and each.since_launch <= latency + EXACT else each
        for each in begun
    ]
    pace = middle([each.gap for each in begun if each.by == "stream" and each.gap <= LATE])
    return [paced(work, each, latency, pace) for work, each in zip(made, begun, strict=True)]


def middle(values: list[float]) -> float:
    return median(values) if values else 0.0


def beginning(trace: Trace, between: InterStream, op: int, after: int, times: tuple[float, float, float]) -> Beginning:
    """How one began that follows `after`; when it was queued, when the one before ended, when it began."""
    queued, before, start = times
    call = between.by[op]
    of_graph = call >= 0 and "GraphLaunch" in trace.calls[call].name
    follows = after >= 0 and trace.ops[after].correlation == trace.ops[op].correlation
    ready, gap = readiness(trace, between, op, max(queued, before), start)
    if gap > LATE and not (of_graph and follows) and between.by_time(op):
        ready, gap = readiness(trace, between, op, max(queued, before), start)
    if call < 0:
        return Beginning(gap, float("inf"), "graph" if after >= 0 else "capture")
    if ready <= queued:
        return Beginning(gap, start - queued, "launch")
    return Beginning(gap, start - queued, "graph" if of_graph else "stream")


def readiness(trace: Trace, between: InterStream, op: int, ready: float, begun: float) -> tuple[float, float]:
    """When all that is known had let an operation begin, and how long after it did."""
    for awaited in between.awaits.get(op, ()):
        ready = max(ready, trace.ops[awaited].end)
    return ready, max(0.0, begun - ready)


def paced(work: Work, begun: Beginning, latency: float, pace: float) -> Work:
    """The gap before an operation: the pace of its stream, what launching takes, and what is unseen."""
    gap = begun.gap
    if begun.by == "capture":
        return work._replace(unseen=gap)
    if begun.by == "graph":
        kept = gap if gap <= LATE else min(gap, pace)
        return work._replace(lead=kept, unseen=gap - kept)
    if begun.by == "launch":
        unseen = gap - latency if gap > max(LATE, latency) else 0.0
        lead = min(gap - unseen, pace)
        return work._replace(lead=lead, delay=begun.since_launch - unseen - lead, unseen=unseen)
    kept = gap if gap <= LATE else min(gap, pace)
    delay = max(0.0, min(latency, begun.since_launch - gap))
    return work._replace(lead=kept, delay=delay, unseen=gap - kept)
