"""Dependencies of host threads: on the device, where a synchronising call waits for what its streams were given until
then, and on each other, where a thread that resumes after a gap was woken by another, which then fell idle.

Newer traces record which stream or event a call waits for (`cuda_sync`). In older ones it is inferred: the stream to
which the same thread last gave work, if that work had ended when the call returned; else, for a long call, the stream
whose work ended last before the return. Calls that fit neither are counted, and their excess time is `unseen`.

The backward thread starts when the main thread has called it and waits; the main thread resumes when that is done.
Traces do not record this, but gaps show it: thread U resumes at s; of all threads that fell idle at most a tolerance
before s and stayed idle, T fell idle last; and U was idle then. The time in between is the wake-up latency. Threads
that never run an operator (watchdogs that query events) are ignored. A gap that ends with a collective that the host's
threads do, as gloo's, is a wait for that.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from planner.plan.task import LOADER
from planner.replay.dependencies.host_segments import MAX_OWN_GAP, HostThreads
from planner.replay.dependencies.launches import MAX_RETURN_LATENCY, MIN_BLOCKING_CALL, TIME_RESOLUTION, StreamQueues
from planner.replay.recording.recorded_names import GARBAGE, RUNTIME_PREFIX, call_effect, host_kind
from planner.replay.recording.recorded_trace import HostSpans, RecordedTrace, RuntimeCall
from planner.units import MS, US

MIN_GAP = 50 * US  # shortest gap that may be a wait
MAX_WAKE_LATENCY = 1 * MS  # at most, from when one thread falls idle until the other resumes
MAX_LINKED_LATENCY = 10 * MS  # the same, for two threads joined by an arrow from forward to backward


def cut_at_synchronisation(trace: RecordedTrace, threads: HostThreads, queues: StreamQueues, calls: list[int]) -> int:
    """Cut host threads at synchronising calls; return the number of long calls for which no cause was found."""
    lasts = last_stream_before_call(trace, calls)
    unmatched = 0
    for i, call in enumerate(trace.calls):
        effect = call_effect(call.name)
        if not effect.endswith("_sync"):
            continue
        found = (
            [*all_awaited_streams(queues, call)]
            if effect == "device_sync"
            else awaited_stream(trace, queues, call, lasts[i])
        )
        if not found:
            if call.end - call.start > MIN_BLOCKING_CALL:
                threads.cut(call.thread, call.start)
                threads.cut(call.thread, call.end).unmatched = True
                unmatched += 1
            continue
        threads.cut(call.thread, call.start)
        threads.cut(call.thread, call.end).awaited_streams = tuple(found)
    return unmatched


def last_stream_before_call(trace: RecordedTrace, calls: list[int]) -> list[int]:
    """For each call, the stream to which its thread last gave work; −1: none."""
    given = {}
    for op, call_number in zip(trace.ops, calls, strict=True):
        given[call_number] = op.stream
    found, thread, last = [], -1, -1
    for i, call in enumerate(trace.calls):
        if call.thread != thread:
            thread, last = call.thread, -1
        last = given.get(i, last)
        found.append(last)
    return found


def all_awaited_streams(queues: StreamQueues, call: RuntimeCall) -> Iterator[tuple[int, int]]:
    """All streams that a device synchronisation awaited, each with its last queued operation."""
    for stream in range(len(queues.ops)):
        op, end = last_queued_op(queues, stream, call.start)
        if op >= 0 and end <= call.end + TIME_RESOLUTION:
            yield stream, op


def awaited_stream(trace: RecordedTrace, queues: StreamQueues, call: RuntimeCall, last: int) -> list[tuple[int, int]]:
    """The stream that a call awaited with its last queued operation; empty where none was found."""
    recorded = trace.sync_targets.get(call.correlation)
    if recorded and (recorded.stream >= 0 or recorded.awaited_stream >= 0):
        last = recorded.stream if recorded.stream >= 0 else recorded.awaited_stream
    if last >= 0:
        op, end = last_queued_op(queues, last, call.start)
        if (
            op >= 0
            and end <= call.end + TIME_RESOLUTION
            and (call.end - max(call.start, end) <= MAX_RETURN_LATENCY or recorded)
        ):
            return [(last, op)]
    if call.end - call.start < MIN_BLOCKING_CALL:
        return []
    ends = [(*last_queued_op(queues, stream, call.start), stream) for stream in range(len(queues.ops))]
    over = [
        (end, stream, op) for op, end, stream in ends if op >= 0 and call.start <= end <= call.end + TIME_RESOLUTION
    ]
    end, stream, op = max(over, default=(0.0, -1, -1))
    return [(stream, op)] if op >= 0 and call.end - end <= MAX_RETURN_LATENCY else []


def last_queued_op(queues: StreamQueues, stream: int, time: float) -> tuple[int, float]:
    """The last operation queued on a stream at `time` (−1: none), and when all operations up to it had ended."""
    op = queues.last_queued(stream, time)
    return (op, queues.ends[stream][op - queues.ops[stream][0]]) if op >= 0 else (-1, 0.0)


class IdleGap(NamedTuple):
    """A time in which a thread does nothing recorded; seconds."""

    start: float
    end: float
    thread: int


def add_handovers(trace: RecordedTrace, threads: HostThreads) -> int:
    """Add waits between threads to their segments; return their number."""
    count = 0
    linked = {frozenset((link.thread, link.to_thread)) for link in trace.arrows}
    gaps = sorted(gap for thread in operator_threads(trace.host) for gap in idle_gaps(trace.host, thread))
    starts = [gap.start for gap in gaps]
    collectives = sorted((op.end, i) for i, op in enumerate(trace.ops) if op.kind == "collective")
    for gap in gaps:
        if np.isinf(gap.end):
            continue
        over = bisect_right(collectives, (gap.end + TIME_RESOLUTION, 0)) - 1
        if over >= 0 and collectives[over][0] > max(gap.start, gap.end - MAX_WAKE_LATENCY):
            threads.cut(gap.thread, gap.start)
            threads.cut(gap.thread, gap.end).awaited_ops += (collectives[over][1],)
            continue
        waker = waking_gap(gap, gaps, starts, linked)
        if waker:
            if gap.start > 0:
                threads.cut(gap.thread, gap.start)
            awaited = threads.cut(waker.thread, waker.start)
            threads.cut(gap.thread, gap.end).awaited_segments += (awaited,)
            count += 1
    return count


def operator_threads(host: HostSpans) -> list[int]:
    """Threads with operators; those with runtime calls alone are watchdogs, which wake no other."""
    calls = np.array([RUNTIME_PREFIX.match(name) is not None for name in host.names], dtype=np.bool_)
    found: list[int] = np.unique(host.thread[~calls[host.name]]).tolist()
    return found


def idle_gaps(host: HostSpans, thread: int) -> list[IdleGap]:
    """Gaps of one thread: between its spans, and before and after them."""
    mine = host.thread == thread
    start, end, annotation = host.start[mine], host.end[mine], host.annotation[mine]
    if not len(start):
        return []
    times = np.unique(np.concatenate([start, end]))
    long = np.flatnonzero(np.diff(times) > MIN_GAP)
    working = ~annotation & (end - start > MIN_GAP)
    leaves = {*zip(start[working].tolist(), end[working].tolist(), strict=True)}
    pairs = zip(times[long].tolist(), times[long + 1].tolist(), strict=True)
    within = [IdleGap(a, b, thread) for a, b in pairs if (a, b) not in leaves]
    first, last = float(times[0]), float(times[-1])
    before = [IdleGap(0.0, first, thread)] if first > MIN_GAP else []
    return [*before, *within, IdleGap(last, float("inf"), thread)]


def long_gaps(host: HostSpans, threads: int) -> list[list[tuple[float, float]]]:
    """By thread, the gaps in which it is in no operator, call, data loader or garbage collection, if they are long."""
    special = np.array([host_kind(name) in (LOADER, GARBAGE) for name in host.names], dtype=np.bool_)
    works = ~host.annotation | special[host.name] if len(host.names) else host.annotation
    found = []
    for thread in range(threads):
        mine = works & (host.thread == thread)
        start, end = host.start[mine], np.maximum.accumulate(host.end[mine])
        begins, ends = np.concatenate([[0.0], end]), np.concatenate([start, [np.inf]])
        long = ends - begins > MAX_OWN_GAP
        found.append([*zip(begins[long].tolist(), ends[long].tolist(), strict=True)])
    return found


def waking_gap(gap: IdleGap, gaps: list[IdleGap], starts: list[float], linked: set[frozenset[int]]) -> IdleGap | None:
    """The gap of another thread that began just before this one ended; None: no thread woke this one."""
    i = bisect_right(starts, gap.end)
    while i > 0:
        i -= 1
        other = gaps[i]
        if gap.end - other.start > MAX_LINKED_LATENCY or other.start < gap.start:
            return None
        near = MAX_LINKED_LATENCY if frozenset((gap.thread, other.thread)) in linked else MAX_WAKE_LATENCY
        if other.thread != gap.thread and other.end >= gap.end and gap.end - other.start <= near:
            return other
    return None
