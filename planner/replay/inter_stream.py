"""From stream to stream of a device: work after `cudaStreamWaitEvent` waits for the work before its `cudaEventRecord`.

Which stream waits for which is said by newer traces only (`cuda_sync`). In others it is found, in this order:
1. the waiting stream is the one that the same thread gives work next;
2. if that thread gave its last work before to another stream, the wait is for that work: a collective waits for what it
   is made of;
3. else it is for another stream's last work at the time of the call, the one that ended last before the waiting work
   began: what comes after a collective waits for it;
4. work that began long after anything explains, within a tolerance of the end of another stream's work, waited for it.
What ended only after the waiting work had begun was never waited for.
"""

from bisect import bisect_left, bisect_right
from collections import Counter

from planner.replay.calls import does
from planner.replay.launches import EXACT, Queues
from planner.replay.trace import Call, Trace
from planner.units import US

LATE = 20 * US  # from when all that is known lets work begin until it does; what is longer is not the device's own pace
TOGETHER = 20 * US  # from the end of one stream's work to the beginning of another's that waited for it


class InterStream:
    """For every operation, those of other streams that it waits for, and how many were found by which rule."""

    def __init__(self, trace: Trace, queues: Queues, at: list[float], by: list[int]) -> None:
        self.trace, self.queues, self.at, self.by = trace, queues, at, by
        self.awaits: dict[int, list[int]] = {}
        self.found = Counter[str]()
        self.recorded = {call.correlation: call.end for call in trace.calls if does(call.name) == "record"}
        self.order = sorted((call, min(i for i in ops)) for call, ops in self.of_calls().items())

    def of_calls(self) -> dict[int, list[int]]:
        ops: dict[int, list[int]] = {}
        for i, call in enumerate(self.by):
            if call >= 0:
                ops.setdefault(call, []).append(i)
        return ops

    def by_calls(self) -> None:
        """What the calls of the trace say, or let one conclude."""
        calls = [call for call, _ in self.order]
        for i, call in enumerate(self.trace.calls):
            if does(call.name) != "stream_wait":
                continue
            after = bisect_right(calls, i)
            following = self.order[after][1] if after < len(calls) and self.same_thread(calls[after], i) else -1
            before = self.order[after - 1][1] if after and self.same_thread(calls[after - 1], i) else -1
            self.wait(call, before, following)

    def same_thread(self, one: int, other: int) -> bool:
        return self.trace.calls[one].thread == self.trace.calls[other].thread

    def wait(self, call: Call, before: int, following: int) -> None:
        """One call that lets a stream wait; the operations that its thread queued before and after it."""
        ops = self.trace.ops
        said = self.trace.waited.get(call.correlation)
        if said and said.stream >= 0 and said.on_stream >= 0:
            place = bisect_left(self.queues.queued[said.stream], call.end)
            mine = self.queues.ops[said.stream]
            recorded = self.recorded.get(said.record, call.end)
            awaited = self.queues.last_queued(said.on_stream, recorded)
            self.add(mine[place] if place < len(mine) else -1, awaited, "as said")
        elif following >= 0 and before >= 0 and ops[before].stream != ops[following].stream:
            self.add(following, before, "by the order of calls")
        elif following >= 0:
            stream = ops[following].stream
            lasts = (
                self.queues.last_queued(other, call.start) for other in range(len(self.queues.ops)) if other != stream
            )
            over = [(ops[i].end, i) for i in lasts if i >= 0 and ops[i].end <= ops[following].start + EXACT]
            self.add(following, max(over, default=(0.0, -1))[1], "by the order of calls")

    def add(self, op: int, awaited: int, rule: str) -> bool:
        """What began before the other one's end did not wait for it."""
        ops = self.trace.ops
        if op < 0 or awaited < 0 or ops[op].stream == ops[awaited].stream:
            return False
        if ops[awaited].end > ops[op].start + EXACT or ops[awaited].start >= ops[op].start:
            return False
        if awaited not in self.awaits.setdefault(op, []):
            self.awaits[op].append(awaited)
            self.found[rule] += 1
        return True

    def by_time(self, op: int) -> bool:
        """Whether a late operation began as another stream's ended."""
        ops, queues = self.trace.ops, self.queues
        begun, found = ops[op].start, (0.0, -1)
        for stream in range(len(queues.ops)):
            if stream != ops[op].stream:
                awaited = queues.last_ended(stream, begun + EXACT)
                if awaited >= 0 and ops[awaited].end >= begun - TOGETHER:
                    found = max(found, (ops[awaited].end, awaited))
        return found[1] >= 0 and self.add(op, found[1], "by their times")
