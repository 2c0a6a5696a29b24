"""From the device to the host: a call that synchronises waits for what its streams have been given until then.

Newer traces say which stream or event (`cuda_sync`). In older ones it is found: the stream that the same thread gave
work last, if that work was over when the call came back; else, of a call that took long, whichever stream's work ended
last before it came back. What fits neither is counted, and is unseen time beyond what such a call takes itself.
"""

from collections.abc import Iterator

from planner.replay.calls import does
from planner.replay.launches import BLOCKED, EXACT, RETURN, Queues
from planner.replay.pieces import Threads
from planner.replay.trace import Call, Trace


def synchronise(trace: Trace, threads: Threads, queues: Queues, by: list[int]) -> int:
    """Add what calls wait for; the number of long ones for which nothing was found."""
    lasts = last_streams(trace, by)
    unknown = 0
    for i, call in enumerate(trace.calls):
        what = does(call.name)
        if not what.endswith("_sync"):
            continue
        found = [*every(queues, call)] if what == "device_sync" else one(trace, queues, call, lasts[i])
        if not found:
            if call.end - call.start > BLOCKED:
                threads.cut(call.thread, call.start)
                threads.cut(call.thread, call.end).unmatched = True
                unknown += 1
            continue
        threads.cut(call.thread, call.start)
        threads.cut(call.thread, call.end).markers = tuple(found)
    return unknown


def last_streams(trace: Trace, by: list[int]) -> list[int]:
    """The stream that the thread of each call had given work last; −1: none."""
    given = {}
    for op, call_number in zip(trace.ops, by, strict=True):
        given[call_number] = op.stream
    found, thread, last = [], -1, -1
    for i, call in enumerate(trace.calls):
        if call.thread != thread:
            thread, last = call.thread, -1
        last = given.get(i, last)
        found.append(last)
    return found


def every(queues: Queues, call: Call) -> Iterator[tuple[int, int]]:
    """All streams with work, each with the last that it was given."""
    for stream in range(len(queues.ops)):
        op, end = last_given(queues, stream, call.start)
        if op >= 0 and end <= call.end + EXACT:
            yield stream, op


def one(trace: Trace, queues: Queues, call: Call, last: int) -> list[tuple[int, int]]:
    """The stream that a call waited for."""
    said = trace.waited.get(call.correlation)
    if said and (said.stream >= 0 or said.on_stream >= 0):
        last = said.stream if said.stream >= 0 else said.on_stream
    if last >= 0:
        op, end = last_given(queues, last, call.start)
        if op >= 0 and end <= call.end + EXACT and (call.end - max(call.start, end) <= RETURN or said):
            return [(last, op)]
    if call.end - call.start < BLOCKED:
        return []
    ends = [(*last_given(queues, stream, call.start), stream) for stream in range(len(queues.ops))]
    over = [(end, stream, op) for op, end, stream in ends if op >= 0 and call.start <= end <= call.end + EXACT]
    end, stream, op = max(over, default=(0.0, -1, -1))
    return [(stream, op)] if op >= 0 and call.end - end <= RETURN else []


def last_given(queues: Queues, stream: int, time: float) -> tuple[int, float]:
    """The last operation that a stream had been given by then, and when all up to it were over."""
    op = queues.last_queued(stream, time)
    return (op, queues.ends[stream][op - queues.ops[stream][0]]) if op >= 0 else (-1, 0.0)
