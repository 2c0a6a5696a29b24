"""Arrows between events: from forward operators to backward ones, and from calls to what they launched.

The second kind is asked only where events do not say their correlation themselves.
"""

from collections.abc import Iterator, Sequence

from planner.replay.decode import Either, Event
from planner.replay.trace import Call, Link, Op

Ends = dict[str, tuple[str, str, float]]  # id → process, thread, time


def arrows(events: Sequence[Event], category: str) -> Iterator[tuple[tuple[str, str, float], tuple[str, str, float]]]:
    """Tail and head of each arrow of a category that has both."""
    tails: Ends = {}
    heads: Ends = {}
    for event in events:
        if event.ph in ("s", "f") and event.cat == category and event.ts is not None:
            ends = tails if event.ph == "s" else heads
            ends[text(event.id)] = (text(event.pid), text(event.tid), float(event.ts))
    for key, tail in tails.items():
        if key in heads:
            yield tail, heads[key]


def text(value: Either) -> str:
    """7, 7.0 and "7" are one thread."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def links(events: Sequence[Event], threads: dict[tuple[str, str], int], seconds: float, base: float) -> list[Link]:
    """From forward operators to backward ones; `seconds`: of a unit of time as written, `base`: where it begins."""
    found = []
    for (pid, tid, ts), (to_pid, to_tid, to_ts) in arrows(events, "fwdbwd"):
        if (pid, tid) in threads and (to_pid, to_tid) in threads:
            times = ((ts - base) * seconds, (to_ts - base) * seconds)
            found.append(Link(threads[pid, tid], times[0], threads[to_pid, to_tid], times[1]))
    return sorted(found, key=lambda link: (link.to_thread, link.to_time))


def correlated(
    events: Sequence[Event], calls: Sequence[Call], ops: Sequence[Op], to_seconds: tuple[float, float]
) -> tuple[list[Call], list[Op]]:
    """Calls and operations, those without a correlation joined by the arrows `ac2g`: each begins where its end does."""
    seconds, base = to_seconds
    launched = {round((tail[2] - base) * seconds, 9): i for i, (tail, _) in enumerate(arrows(events, "ac2g"))}
    begun = {round((head[2] - base) * seconds, 9): i for i, (_, head) in enumerate(arrows(events, "ac2g"))}
    joined_calls = [
        call if call.correlation >= 0 else call._replace(correlation=launched.get(round(call.start, 9), -1))
        for call in calls
    ]
    joined_ops = [
        op if op.correlation >= 0 else op._replace(correlation=begun.get(round(op.start, 9), -1)) for op in ops
    ]
    return joined_calls, joined_ops
