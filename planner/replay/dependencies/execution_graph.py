"""The execution graph of a trace: segments of host threads, device operations, and who waits for whom."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.replay.dependencies.host_segments import HostSegment, HostThreads
from planner.replay.dependencies.host_waits import add_handovers, cut_at_synchronisation, long_gaps
from planner.replay.dependencies.inter_stream import InterStreamWaits
from planner.replay.dependencies.launches import StreamQueues, cut_at_launches, likely_launches, queue_times
from planner.replay.dependencies.op_timing import OpTiming, time_ops
from planner.replay.recording.recorded_trace import RecordedTrace, StepMark
from planner.units import duration

TimeArray = NDArray[np.float64]


class StepBoundary(NamedTuple):
    """Where a step begins or ends: when the host is there, and all work that it launched until then has ended."""

    segment: HostSegment
    ops: tuple[int, ...]  # the last operation of each stream that was launched until then

    def time(self, segment_end: float, op_ends: TimeArray) -> float:
        """When that is, in seconds; `op_ends`: of all operations, (operations,)."""
        return max((segment_end, *(float(op_ends[op]) for op in self.ops)))


class GraphStep(NamedTuple):
    """A training step, from when the work before it has ended until its own has."""

    name: str
    begin: StepBoundary
    end: StepBoundary
    seconds: float  # as measured
    host_ahead: float  # seconds from when the host ends the step until its work has ended


@dataclass(frozen=True, slots=True)
class ExecutionGraph:
    """The execution graph of one rank."""

    trace: RecordedTrace
    segments: list[HostSegment]
    op_timings: list[OpTiming]
    launching_calls: list[int]  # the call that launched each operation; −1: unmatched
    steps: list[GraphStep]
    dependency_counts: dict[str, int]  # number of dependencies of each kind
    notes: tuple[str, ...]


def build_graph(trace: RecordedTrace) -> ExecutionGraph:
    """Build the execution graph of a trace: find all dependencies and the timing of every operation."""
    threads, counts = HostThreads(len(trace.threads)), Counter[str]()
    queued_at, calls = queue_times(trace)
    likely = likely_launches(trace, queued_at, calls)
    queues = StreamQueues(trace, queued_at, [0 if i in likely else call for i, call in enumerate(calls)])
    launching = cut_at_launches(trace, threads, queues, queued_at, calls, likely)
    unmatched = cut_at_synchronisation(trace, threads, queues, calls)
    counts["threads"] = add_handovers(trace, threads)
    marks = cut_at_steps(trace, threads, queues)  # last: step segments come after others that end together
    between = InterStreamWaits(trace, queues, queued_at, calls)
    between.find_by_calls()
    work = time_ops(trace, queued_at, launching, between)
    all_segments = threads.finish([op.end for op in trace.ops], long_gaps(trace.host, len(trace.threads)))
    counts["launch"] = sum(segment is not None for segment in launching)
    counts["synchronise"] = sum(segment.synchronises for segment in all_segments)
    counts["inter-stream"] = sum(between.found_by_rule.values())
    notes = graph_notes(trace, work, calls, unmatched, between.found_by_rule)
    return ExecutionGraph(trace, all_segments, work, calls, steps_between_marks(trace, marks), dict(counts), notes)


def with_op_timings(graph: ExecutionGraph, change: Callable[[int, OpTiming], OpTiming]) -> ExecutionGraph:
    """The graph with changed timings of its device operations; `change` takes number and timing of each."""
    return replace(graph, op_timings=[change(i, work) for i, work in enumerate(graph.op_timings)])


def cut_at_steps(
    trace: RecordedTrace, threads: HostThreads, queues: StreamQueues
) -> list[tuple[StepMark, StepBoundary, StepBoundary]]:
    """Each step with its beginning and end; without steps, the whole capture is one."""
    whole = StepMark("the whole capture", 0, 0.0, float(trace.host.end.max(initial=0.0)))
    if not trace.steps:
        begin, end = threads.cut(whole.thread, whole.start), threads.cut(whole.thread, whole.end)
        return [(whole, StepBoundary(begin, ()), StepBoundary(end, queues.lasts_queued([float("inf")])[0]))]
    begun = queues.lasts_queued([mark.start for mark in trace.steps])
    ended = queues.lasts_queued([mark.end for mark in trace.steps])
    return [
        (
            mark,
            StepBoundary(threads.cut(mark.thread, mark.start), a),
            StepBoundary(threads.cut(mark.thread, mark.end), b),
        )
        for mark, a, b in zip(trace.steps, begun, ended, strict=True)
    ]


def steps_between_marks(
    trace: RecordedTrace, marks: list[tuple[StepMark, StepBoundary, StepBoundary]]
) -> list[GraphStep]:
    """Each step extends to the beginning of the next one; the last, and one before a pause, to its own end."""
    op_ends = np.fromiter((op.end for op in trace.ops), dtype=np.float64, count=len(trace.ops))
    steps = []
    for i, (mark, begin, end) in enumerate(marks):
        if i + 1 < len(marks):
            following, begins, _ = marks[i + 1]
            if 0 <= following.start - mark.end <= (mark.end - mark.start) / 10 and following.thread == mark.thread:
                end = begins
        first, last = (each.time(each.segment.end, op_ends) for each in (begin, end))
        steps.append(GraphStep(mark.name, begin, end, last - first, last - end.segment.end))
    return steps


def graph_notes(
    trace: RecordedTrace, work: list[OpTiming], calls: list[int], unmatched: int, rules: Counter[str]
) -> tuple[str, ...]:
    """Notes on what the trace lacks, what the graph could not explain, and how its waits were found."""
    lost = sum(each.launch is None for each in work)
    likely = sum(each.launch is not None and call < 0 for each, call in zip(work, calls, strict=True))
    early = sum(
        each.launch is not None and op.start < each.launch.end - 1e-9 for op, each in zip(trace.ops, work, strict=True)
    )
    unseen, hidden = sum(each.unseen for each in work), sum(each.hidden for each in work)  # seconds
    no_device = all(op.kind == "collective" for op in trace.ops)
    by_rule = ", ".join(f"{count} {rule}" for rule, count in sorted(rules.items()))
    notes = {
        "no ProfilerStep in the trace: the whole capture is taken for one step": not trace.steps,
        "no work of a device in the trace: the host's threads only": no_device,
        "no calls of a device's runtime in the trace: what let work begin is not known": not (no_device or trace.calls),
        "no thread of a host in the trace: kernels alone say where the device's time went": not len(trace.host.start),
        f"{lost} operations of the device have no launch in the trace before them: they follow their predecessor on "
        "the stream": lost,
        f"{likely} operations have no launch in the trace, but found their stream idle: they were launched just "
        "before": likely,
        f"{early} operations begin before their launch does: the clocks of host and device disagree": early,
        f"{unmatched} calls that synchronise wait for nothing that the trace shows: their time beyond that of other "
        "such calls is unseen": unmatched,
        f"waits between streams were found {by_rule}": by_rule,
        f"{duration(hidden)} of gaps within launched graphs come back at each launch: they are taken for work of the "
        "graph that the trace does not show": hidden,
        f"{duration(unseen)} of streams lie before operations and are not explained by anything found in the "
        "trace": unseen,
    }
    return (*trace.notes, *(note for note, holds in notes.items() if holds))
