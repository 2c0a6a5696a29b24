"""Dependencies of the host on the device: a synchronising call waits for what its streams were given until then.

Newer traces record which stream or event (`cuda_sync`). In older ones it is inferred: the stream to which the same
thread last gave work, if that work had ended when the call returned; else, for a long call, the stream whose work ended
last before the return. Calls that fit neither are counted, and their excess time is `unseen`.
"""

from collections.abc import Iterator

from planner.replay.dependencies.host_segments import HostThreads
from planner.replay.dependencies.launches import MAX_RETURN_LATENCY, MIN_BLOCKING_CALL, TIME_RESOLUTION, StreamQueues
from planner.replay.recording.recorded_trace import RecordedTrace, RuntimeCall
from planner.replay.recording.runtime_calls import call_effect


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
