"""Dependencies between host threads: a thread that resumes after a gap was woken by another, which then fell idle.

The backward thread starts when the main thread has called it and waits; the main thread resumes when that is done.
Traces do not record this, but gaps show it: thread U resumes at s; of all threads that fell idle at most a tolerance
before s and stayed idle, T fell idle last; and U was idle then. The time in between is the wake-up latency. Threads
that never run an operator (watchdogs that query events) are ignored.
"""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from planner.replay.dependencies.host_segments import HostThreads
from planner.replay.recording.recorded_trace import HostSpans, RecordedTrace
from planner.replay.recording.runtime_calls import RUNTIME_PREFIX
from planner.units import MS, US

MIN_GAP = 50 * US  # shortest gap that may be a wait
MAX_WAKE_LATENCY = 1 * MS  # at most, from when one thread falls idle until the other resumes
MAX_LINKED_LATENCY = 10 * MS  # the same, for two threads joined by an arrow from forward to backward


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
    for gap in gaps:
        if np.isinf(gap.end):
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
