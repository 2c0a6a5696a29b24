"""Dependencies between streams: work after `cudaStreamWaitEvent` waits for the work before its `cudaEventRecord`.

Only newer traces record which stream waits for which (`cuda_sync`). In others it is inferred, in this order:
1. the waiting stream is the one to which the same thread gives work next;
2. if that thread gave its previous work to another stream, the wait is for that work: a collective waits for the
   kernels that produce its input;
3. else it is for the last work of another stream at the time of the call, the one that ended last before the waiting
   work began: what consumes a collective waits for it;
4. work that began later than anything known explains, within a tolerance of the end of another stream's work, waited
   for that work.
Work that ended after the waiting work had begun is never taken as awaited.
"""

from bisect import bisect_left, bisect_right
from collections import Counter

from planner.replay.dependencies.launches import TIME_RESOLUTION, StreamQueues
from planner.replay.recording.recorded_names import call_effect
from planner.replay.recording.recorded_trace import RecordedTrace, RuntimeCall
from planner.units import US

MAX_WAKE_GAP = 20 * US  # at most, from the end of awaited work to the start of waiting work on another stream


class InterStreamWaits:
    """For each operation, those of other streams that it waits for; and the number of waits found by each rule."""

    def __init__(self, trace: RecordedTrace, queues: StreamQueues, at: list[float], by: list[int]) -> None:
        self.trace, self.queues, self.queued_at, self.launching_call = trace, queues, at, by
        self.awaited_ops: dict[int, list[int]] = {}
        self.found_by_rule = Counter[str]()
        self.record_times = {call.correlation: call.end for call in trace.calls if call_effect(call.name) == "record"}
        self.launch_order = sorted((call, min(i for i in ops)) for call, ops in self.ops_of_calls().items())

    def ops_of_calls(self) -> dict[int, list[int]]:
        """Operations by the call that launched them."""
        ops: dict[int, list[int]] = {}
        for i, call in enumerate(self.launching_call):
            if call >= 0:
                ops.setdefault(call, []).append(i)
        return ops

    def find_by_calls(self) -> None:
        """Find waits by recorded `cuda_sync` events and by the order of calls."""
        calls = [call for call, _ in self.launch_order]
        for i, call in enumerate(self.trace.calls):
            if call_effect(call.name) != "stream_wait":
                continue
            after = bisect_right(calls, i)
            following = self.launch_order[after][1] if after < len(calls) and self.same_thread(calls[after], i) else -1
            before = self.launch_order[after - 1][1] if after and self.same_thread(calls[after - 1], i) else -1
            self.resolve_wait_call(call, before, following)

    def same_thread(self, one: int, other: int) -> bool:
        return self.trace.calls[one].thread == self.trace.calls[other].thread

    def resolve_wait_call(self, call: RuntimeCall, before: int, following: int) -> None:
        """Resolve one `cudaStreamWaitEvent`; `before`, `following`: its thread's operations around it, or −1."""
        ops = self.trace.ops
        target = self.trace.sync_targets.get(call.correlation)
        if target and target.stream >= 0 and target.awaited_stream >= 0:
            index = bisect_left(self.queues.queued[target.stream], call.end)
            stream_ops = self.queues.ops[target.stream]
            recorded_at = self.record_times.get(target.recording_call, call.end)
            awaited = self.queues.last_queued(target.awaited_stream, recorded_at)
            self.add_wait(stream_ops[index] if index < len(stream_ops) else -1, awaited, "as recorded")
        elif following >= 0 and before >= 0 and ops[before].stream != ops[following].stream:
            self.add_wait(following, before, "by the order of calls")
        elif following >= 0:
            stream = ops[following].stream
            lasts = (
                self.queues.last_queued(other, call.start) for other in range(len(self.queues.ops)) if other != stream
            )
            ended = [(ops[i].end, i) for i in lasts if i >= 0 and ops[i].end <= ops[following].start + TIME_RESOLUTION]
            self.add_wait(following, max(ended, default=(0.0, -1))[1], "by the order of calls")

    def add_wait(self, op: int, awaited: int, rule: str) -> bool:
        """Add a wait unless the times rule it out; whether it is one now."""
        ops = self.trace.ops
        if op < 0 or awaited < 0 or ops[op].stream == ops[awaited].stream:
            return False
        if ops[awaited].end > ops[op].start + TIME_RESOLUTION or ops[awaited].start >= ops[op].start:
            return False
        if awaited not in self.awaited_ops.setdefault(op, []):
            self.awaited_ops[op].append(awaited)
            self.found_by_rule[rule] += 1
        return True

    def find_by_time(self, op: int) -> bool:
        """Find what a late operation waited for: work of another stream that ended just before. True if any."""
        ops, queues = self.trace.ops, self.queues
        begun, found = ops[op].start, (0.0, -1)
        for stream in range(len(queues.ops)):
            if stream != ops[op].stream:
                awaited = queues.last_ended(stream, begun + TIME_RESOLUTION)
                if awaited >= 0 and ops[awaited].end >= begun - MAX_WAKE_GAP:
                    found = max(found, (ops[awaited].end, awaited))
        return found[1] >= 0 and self.add_wait(op, found[1], "by their times")
