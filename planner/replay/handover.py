"""Dependencies between host threads: a thread that resumes after a gap was woken by another, which then fell idle.

The backward thread starts when the main thread has called it and waits; the main thread resumes when that is done.
Traces do not record this, but gaps show it: thread U resumes at s; of all threads that fell idle at most a tolerance
before s and stayed idle, T fell idle last; and U was idle then. The time in between is the wake-up latency. Threads
that never run an operator (watchdogs that query events) are ignored.
"""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from planner.replay.calls import PREFIX
from planner.replay.pieces import Threads
from planner.replay.trace import Host, Trace
from planner.units import MS, US

SIGNIFICANT = 50 * US  # shortest gap that may be a wait
WAKING = 1 * MS  # at most, from when one thread falls idle until the other resumes
LINKED = 10 * MS  # the same, for two threads joined by an arrow from forward to backward


class Gap(NamedTuple):
    """A time in which a thread does nothing recorded; seconds."""

    start: float
    end: float
    thread: int


def handovers(trace: Trace, threads: Threads) -> int:
    """Add waits between threads to their segments; return their number."""
    count = 0
    linked = {frozenset((link.thread, link.to_thread)) for link in trace.links}
    gaps = sorted(gap for thread in operating(trace.host) for gap in gaps_of(trace.host, thread))
    starts = [gap.start for gap in gaps]
    for gap in gaps:
        if np.isinf(gap.end):
            continue
        waker = woken_by(gap, gaps, starts, linked)
        if waker:
            if gap.start > 0:
                threads.cut(gap.thread, gap.start)
            awaited = threads.cut(waker.thread, waker.start)
            threads.cut(gap.thread, gap.end).pieces += (awaited,)
            count += 1
    return count


def operating(host: Host) -> list[int]:
    """Threads with operators; those with runtime calls alone are watchdogs, which wake no other."""
    calls = np.array([PREFIX.match(name) is not None for name in host.names], dtype=np.bool_)
    found: list[int] = np.unique(host.thread[~calls[host.name]]).tolist()
    return found


def gaps_of(host: Host, thread: int) -> list[Gap]:
    """Gaps of one thread: between its spans, and before and after them."""
    mine = host.thread == thread
    start, end, annotation = host.start[mine], host.end[mine], host.annotation[mine]
    if not len(start):
        return []
    times = np.unique(np.concatenate([start, end]))
    long = np.flatnonzero(np.diff(times) > SIGNIFICANT)
    working = ~annotation & (end - start > SIGNIFICANT)
    leaves = {*zip(start[working].tolist(), end[working].tolist(), strict=True)}
    pairs = zip(times[long].tolist(), times[long + 1].tolist(), strict=True)
    within = [Gap(a, b, thread) for a, b in pairs if (a, b) not in leaves]
    first, last = float(times[0]), float(times[-1])
    before = [Gap(0.0, first, thread)] if first > SIGNIFICANT else []
    return [*before, *within, Gap(last, float("inf"), thread)]


def woken_by(gap: Gap, gaps: list[Gap], starts: list[float], linked: set[frozenset[int]]) -> Gap | None:
    """The gap of another thread that began just before this one ended; None: no thread woke this one."""
    i = bisect_right(starts, gap.end)
    while i > 0:
        i -= 1
        other = gaps[i]
        if gap.end - other.start > LINKED or other.start < gap.start:
            return None
        near = LINKED if frozenset((gap.thread, other.thread)) in linked else WAKING
        if other.thread != gap.thread and other.end >= gap.end and gap.end - other.start <= near:
            return other
    return None
