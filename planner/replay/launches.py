"""From the host to the device: a call launches one operation, or all those of a graph, and its stream queues them.

Where an operation began before its call came back, the call is cut there: what is left of it runs beside the operation.
Where the call ended only after its own copy, as with pageable memory, the host waited for it.
"""

from bisect import bisect_right

from planner.replay.calls import does
from planner.replay.pieces import Piece, Threads
from planner.replay.trace import Call, Op, Trace
from planner.units import US

EXACT = 1.001 * US  # by how much times of one moment may differ: older traces count whole microseconds
SKEW = 50 * US  # by how much the clocks of host and device may disagree; a call later than that launched something else
FULL = 500  # operations that wait on a stream before its queue may be full; CUDA's holds about a thousand
BLOCKED = 20 * US  # a call that launches and lasts longer may have waited
RETURN = 100 * US  # at most, from the end of what a call waited for until it came back


class Queues:
    """Per stream: its operations, when they were queued, when they began and ended."""

    def __init__(self, trace: Trace, at: list[float]) -> None:
        self.ops: list[list[int]] = [[] for _ in trace.streams]
        self.queued: list[list[float]] = [[] for _ in trace.streams]
        self.starts: list[list[float]] = [[] for _ in trace.streams]
        self.ends: list[list[float]] = [[] for _ in trace.streams]
        for i, op in enumerate(trace.ops):
            for values, value in ((self.queued, at[i]), (self.starts, op.start), (self.ends, op.end)):
                last = values[op.stream][-1] if values[op.stream] else value
                values[op.stream].append(max(last, value))
            self.ops[op.stream].append(i)

    def last_queued(self, stream: int, time: float) -> int:
        """The last operation that a stream had been given by then; −1: none."""
        found = bisect_right(self.queued[stream], time)
        return self.ops[stream][found - 1] if found else -1

    def last_ended(self, stream: int, time: float) -> int:
        found = bisect_right(self.ends[stream], time)
        return self.ops[stream][found - 1] if found else -1

    def waiting(self, stream: int, time: float) -> int:
        """How many operations had been queued and had not begun."""
        return bisect_right(self.queued[stream], time) - bisect_right(self.starts[stream], time)


def queue_times(trace: Trace) -> tuple[list[float], list[int]]:
    """When each operation was queued, at the latest as it began, and by which call."""
    first: dict[int, int] = {}
    for i, call in enumerate(trace.calls):
        if call.correlation >= 0 and does(call.name) == "work":
            first.setdefault(call.correlation, i)
    by = [first.get(op.correlation, -1) for op in trace.ops]
    by = [call if call < 0 or trace.calls[call].start <= trace.ops[i].start + SKEW else -1 for i, call in enumerate(by)]
    earliest: dict[int, float] = {}
    for op, call_number in zip(trace.ops, by, strict=True):
        earliest[call_number] = min(op.start, earliest.get(call_number, op.start))
    at = []
    for op, call_number in zip(trace.ops, by, strict=True):
        if call_number < 0:
            at.append(0.0)
            continue
        call = trace.calls[call_number]
        issued = call.start if waits_for_own(op, call) else min(call.end, earliest[call_number])
        at.append(max(call.start, issued))
    in_order(trace, at, by)
    return at, by


def in_order(trace: Trace, at: list[float], by: list[int]) -> None:
    """Streams work in the order of launches: what was launched too late for its place has lost its launch."""
    least = [float("inf")] * len(trace.streams)  # of those behind
    for i in range(len(at) - 1, -1, -1):
        if by[i] < 0:
            continue
        stream = trace.ops[i].stream
        if at[i] > least[stream]:
            if trace.calls[by[i]].start > least[stream]:
                at[i], by[i] = 0.0, -1
                continue
            at[i] = least[stream]
        least[stream] = at[i]


def launch(trace: Trace, threads: Threads, queues: Queues, at: list[float], by: list[int]) -> list[Piece | None]:
    """The piece that queues each operation."""
    pieces: dict[int, Piece] = {}
    for i, call_number in enumerate(by):
        if call_number >= 0 and call_number not in pieces:
            call = trace.calls[call_number]
            full = freed_by(trace.ops[i], call, at[i], queues)
            if full >= 0:
                threads.cut(call.thread, call.start)
            piece = pieces[call_number] = threads.cut(call.thread, at[i])
            if full >= 0:
                piece.ops += (full,)
            elif waits_for_own(trace.ops[i], call):
                threads.cut(call.thread, call.end).ops += (i,)
    return [pieces.get(call_number) for call_number in by]


def freed_by(op: Op, call: Call, queued_at: float, queues: Queues) -> int:
    """The operation whose end made room in a full queue for that of a call; −1: the call did not wait for room."""
    if call.end - call.start < BLOCKED or queued_at < call.end or queues.waiting(op.stream, call.end - EXACT) < FULL:
        return -1
    found = queues.last_ended(op.stream, call.end)
    ended = queues.ends[op.stream][bisect_right(queues.ends[op.stream], call.end) - 1] if found >= 0 else 0.0
    return found if found >= 0 and call.start <= ended and call.end - ended <= RETURN else -1


def waits_for_own(op: Op, call: Call) -> bool:
    """A copy to or from pageable memory, or one that is not asynchronous, over before the call was."""
    blocking = "pageable" in op.name.lower() or "Async" not in call.name
    return op.kind == "memcpy" and blocking and op.end <= call.end + EXACT
