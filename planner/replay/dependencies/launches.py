"""Dependencies of the device on the host: a call launches one operation, or all of a CUDA graph, into stream queues.

Where an operation began before its call returned, the call is cut there and its rest runs concurrently. Where a call
returned only after its own copy, as with pageable memory, the host waited for the copy.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from planner.replay.dependencies.host_segments import HostSegment, HostThreads
from planner.replay.recording.recorded_names import call_effect
from planner.replay.recording.recorded_trace import DeviceOp, RecordedTrace, RuntimeCall
from planner.units import US

TIME_RESOLUTION = 1.001 * US  # resolution of times: older traces count whole microseconds
MAX_CLOCK_SKEW = 50 * US  # between host and device clocks; an operation that starts earlier has another launch
FULL_QUEUE_OPS = 500  # queued operations from which a queue may be full; CUDA queues hold about a thousand
MAX_DEVICE_GAP = 20 * US  # of the device itself, from when all that is known lets work begin until it does
MOST_LOST_FIRST = 2  # operations of a stream without a launch before all that have one; more were launched earlier
MIN_BLOCKING_CALL = 20 * US  # a call of at least this duration may have waited
MAX_RETURN_LATENCY = 100 * US  # at most, from the end of what a call waited for to its return


class StreamQueues:
    """Per stream, its operations with the times at which they were queued, began and ended, each non-decreasing."""

    def __init__(self, trace: RecordedTrace, queued_at: list[float], calls: Sequence[int]) -> None:
        self.trace = trace
        self.lost: list[list[bool]] = [[] for _ in trace.streams]  # whether the trace has no launch of an operation
        self.ops: list[list[int]] = [[] for _ in trace.streams]
        self.queued: list[list[float]] = [[] for _ in trace.streams]
        self.starts: list[list[float]] = [[] for _ in trace.streams]
        self.ends: list[list[float]] = [[] for _ in trace.streams]
        for i, op in enumerate(trace.ops):
            for values, value in ((self.queued, queued_at[i]), (self.starts, op.start), (self.ends, op.end)):
                last = values[op.stream][-1] if values[op.stream] else value
                values[op.stream].append(max(last, value))
            self.ops[op.stream].append(i)
            self.lost[op.stream].append(calls[i] < 0)

    def last_queued(self, stream: int, time: float) -> int:
        """The last operation queued on a stream at `time`; −1: none."""
        found = bisect_right(self.queued[stream], time)
        return self.ops[stream][found - 1] if found else -1

    def lasts_queued(self, times: Sequence[float]) -> list[tuple[int, ...]]:
        """At each of some times the last operation queued on each stream that has one.

        Where operations next to such a time have lost their launch, it lies where operations of the same names meet at
        the other times.
        """
        found: list[list[int]] = [[] for _ in times]
        for stream, ops in enumerate(self.ops):
            pairs = Counter[tuple[str, str]]()
            choices = []
            for time in times:
                most = bisect_right(self.queued[stream], time)
                least = most
                while least > 0 and self.lost[stream][least - 1]:
                    least -= 1
                if least == 0 and (most > MOST_LOST_FIRST or all(self.lost[stream])):  # launched before the capture
                    least = most
                choices.append((least, most))
                if least == most and 0 < most < len(ops):
                    names = self.names_around(stream, most)
                    pairs[names] += names[0] != names[1]  # of the same name they meet everywhere
            for each, (least, most) in zip(found, choices, strict=True):
                places = range(least, min(most + 1, len(ops)))
                usual = {at: pairs[self.names_around(stream, at)] if at else 0 for at in places}
                best = max(usual, key=lambda at: (usual[at], -at), default=most) if least < most else most
                if best:
                    each.append(ops[best - 1])
        return [tuple(each) for each in found]

    def names_around(self, stream: int, at: int) -> tuple[str, str]:
        """Names of the operations before and after a place in a stream."""
        before, after = (self.trace.ops[self.ops[stream][place]] for place in (at - 1, at))
        return before.name, after.name

    def last_ended(self, stream: int, time: float) -> int:
        """The last operation of a stream that had ended at `time`; −1: none."""
        found = bisect_right(self.ends[stream], time)
        return self.ops[stream][found - 1] if found else -1

    def queued_not_begun(self, stream: int, time: float) -> int:
        """Number of operations queued but not begun at `time`."""
        return bisect_right(self.queued[stream], time) - bisect_right(self.starts[stream], time)


def queue_times(trace: RecordedTrace) -> tuple[list[float], list[int]]:
    """For each operation, when it was queued (at the latest when it began) and by which call; −1: unknown."""
    first: dict[int, int] = {}
    for i, call in enumerate(trace.calls):
        if call.correlation >= 0 and call_effect(call.name) == "work":
            first.setdefault(call.correlation, i)
    for i, call in enumerate(trace.calls):  # of runtimes whose calls are not known by name
        if call.correlation >= 0 and call_effect(call.name) == "nothing":
            first.setdefault(call.correlation, i)
    calls = [first.get(op.correlation, -1) for op in trace.ops]
    calls = [
        call if call < 0 or trace.calls[call].start <= trace.ops[i].start + MAX_CLOCK_SKEW else -1
        for i, call in enumerate(calls)
    ]
    earliest: dict[int, float] = {}
    for op, call_number in zip(trace.ops, calls, strict=True):
        earliest[call_number] = min(op.start, earliest.get(call_number, op.start))
    queued_at = []
    for op, call_number in zip(trace.ops, calls, strict=True):
        if call_number < 0:
            queued_at.append(op.start if op.kind == "collective" else 0.0)
            continue
        call = trace.calls[call_number]
        issued = call.start if blocks_on_own_copy(op, call) else min(call.end, earliest[call_number])
        queued_at.append(max(call.start, issued))
    enforce_stream_order(trace, queued_at, calls)
    return queued_at, calls


def likely_launches(trace: RecordedTrace, queued_at: list[float], calls: Sequence[int]) -> dict[int, int]:
    """The thread that launched an operation whose launch the trace lacks, and in `queued_at` when.

    An operation that finds its stream idle was launched just before, unless it waited for another stream: it is taken
    for launched as long before as others usually are, by the thread of the launches around it.
    """
    ends = sorted(op.end for op in trace.ops)
    usual = sorted(op.start - queued_at[i] for i, op in enumerate(trace.ops) if calls[i] >= 0)
    latency = min(usual[len(usual) // 4], MAX_DEVICE_GAP) if usual else 0.0
    found: dict[int, int] = {}
    following: dict[int, tuple[float, int]] = {}  # by stream: time and thread of the next launch
    before: list[tuple[float, int, float]] = []
    latest: dict[int, tuple[float, int, float]] = {}  # by stream: time and thread of the last launch, end of its work
    leading = Counter[int]()  # by stream: operations without a launch before all that have one
    for i, op in enumerate(trace.ops):
        before.append(latest.get(op.stream, (0.0, -1, 0.0)))
        time, thread, end = before[-1]
        if calls[i] >= 0:
            time, thread = queued_at[i], trace.calls[calls[i]].thread
        leading[op.stream] += thread < 0
        latest[op.stream] = (time, thread, max(end, op.end))
    for i in range(len(trace.ops) - 1, -1, -1):
        op = trace.ops[i]
        if calls[i] >= 0:
            following[op.stream] = (queued_at[i], trace.calls[calls[i]].thread)
            continue
        (least, thread, idle), (most, next_thread) = before[i], following.get(op.stream, (0.0, -1))
        if thread < 0 and leading[op.stream] <= MOST_LOST_FIRST:
            thread = next_thread
        at = bisect_right(ends, op.start + TIME_RESOLUTION) - 1
        woken = at >= 0 and ends[at] >= op.start - MAX_DEVICE_GAP
        if thread >= 0 and thread == next_thread and op.start > idle + MAX_DEVICE_GAP and not woken:
            queued_at[i] = min(max(op.start - latency, least), most)
            found[i] = thread
            following[op.stream] = (queued_at[i], thread)
    return found


def enforce_stream_order(trace: RecordedTrace, queued_at: list[float], calls: list[int]) -> None:
    """Make queue times ascend on each stream; an operation launched after its successors loses its launch."""
    least = [float("inf")] * len(trace.streams)  # queue time of later operations
    for i in range(len(queued_at) - 1, -1, -1):
        if calls[i] < 0:
            continue
        stream = trace.ops[i].stream
        if queued_at[i] > least[stream]:
            if trace.calls[calls[i]].start > least[stream]:
                queued_at[i], calls[i] = 0.0, -1
                continue
            queued_at[i] = least[stream]
        least[stream] = queued_at[i]


def cut_at_launches(
    trace: RecordedTrace,
    threads: HostThreads,
    queues: StreamQueues,
    queued_at: list[float],
    calls: list[int],
    likely: dict[int, int],
) -> list[HostSegment | None]:
    """Cut host threads where they launch; return the segment that queues each operation, None where unknown.

    `likely`: threads of operations whose launch the trace lacks but that were launched at `queued_at`.
    """
    segments: dict[int, HostSegment] = {}
    supposed = {i: threads.cut(thread, queued_at[i]) for i, thread in likely.items()}
    for i, call_number in enumerate(calls):
        if call_number >= 0 and call_number not in segments:
            call = trace.calls[call_number]
            awaited = op_that_made_room(trace.ops[i], call, queued_at[i], queues)
            if awaited >= 0:
                threads.cut(call.thread, call.start)
            segment = segments[call_number] = threads.cut(call.thread, queued_at[i])
            if awaited >= 0:
                segment.awaited_ops += (awaited,)
            elif blocks_on_own_copy(trace.ops[i], call):
                threads.cut(call.thread, call.end).awaited_ops += (i,)
    return [supposed.get(i) or segments.get(call_number) for i, call_number in enumerate(calls)]


def op_that_made_room(op: DeviceOp, call: RuntimeCall, queued_at: float, queues: StreamQueues) -> int:
    """The operation whose end made room in a full queue, if the call waited for room; else −1."""
    if (
        call.end - call.start < MIN_BLOCKING_CALL
        or queued_at < call.end
        or queues.queued_not_begun(op.stream, call.end - TIME_RESOLUTION) < FULL_QUEUE_OPS
    ):
        return -1
    found = queues.last_ended(op.stream, call.end)
    ended = queues.ends[op.stream][bisect_right(queues.ends[op.stream], call.end) - 1] if found >= 0 else 0.0
    return found if found >= 0 and call.start <= ended and call.end - ended <= MAX_RETURN_LATENCY else -1


def blocks_on_own_copy(op: DeviceOp, call: RuntimeCall) -> bool:
    """Whether a call blocked on its own copy: pageable or not asynchronous, and done before the call returned."""
    blocking = "pageable" in op.name.lower() or "Async" not in call.name
    return op.kind == "memcpy" and blocking and op.end <= call.end + TIME_RESOLUTION
