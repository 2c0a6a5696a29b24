"""The execution graph of a trace: segments of host threads, device operations, and who waits for whom."""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from planner.replay.dependencies.host_segments import HostSegment, HostThreads
from planner.replay.dependencies.host_waits import add_handovers, cut_at_synchronisation
from planner.replay.dependencies.inter_stream import InterStreamWaits
from planner.replay.dependencies.launches import StreamQueues, cut_at_launches, queue_times
from planner.replay.dependencies.op_timing import OpTiming, time_ops
from planner.replay.recording.recorded_trace import RecordedTrace, StepMark


class GraphStep(NamedTuple):
    """A training step with the segments that end at its beginning and at its end."""

    name: str
    begin: HostSegment
    end: HostSegment
    seconds: float  # as measured


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
    queues = StreamQueues(trace, queued_at)
    launching = cut_at_launches(trace, threads, queues, queued_at, calls)
    unmatched = cut_at_synchronisation(trace, threads, queues, calls)
    counts["threads"] = add_handovers(trace, threads)
    marks = cut_at_steps(trace, threads)  # last, so that step segments come after others that end together
    between = InterStreamWaits(trace, queues, queued_at, calls)
    between.find_by_calls()
    work = time_ops(trace, queued_at, launching, between)
    all_segments = threads.finish([op.end for op in trace.ops])
    counts["launch"] = sum(segment is not None for segment in launching)
    counts["synchronise"] = sum(segment.synchronises for segment in all_segments)
    counts["inter-stream"] = sum(between.found_by_rule.values())
    notes = graph_notes(trace, work, unmatched, between.found_by_rule)
    return ExecutionGraph(trace, all_segments, work, calls, steps_between_marks(marks), dict(counts), notes)


def cut_at_steps(trace: RecordedTrace, threads: HostThreads) -> list[tuple[StepMark, HostSegment, HostSegment]]:
    """Each step with segments that end at its beginning and at its end; without steps, the whole capture is one."""
    whole = StepMark("the whole capture", 0, 0.0, trace.end)
    marks = trace.steps or ((whole,) if len(trace.threads) else ())
    segments = []
    for mark in marks:
        begin = threads.cut(mark.thread, mark.start)
        segments.append((mark, begin, threads.cut(mark.thread, mark.end)))
    return segments


def steps_between_marks(marks: list[tuple[StepMark, HostSegment, HostSegment]]) -> list[GraphStep]:
    """Each step extends to the beginning of the next one; the last, and one before a pause, to its own end."""
    steps = []
    for i, (mark, begin, end) in enumerate(marks):
        if i + 1 < len(marks):
            following, begins, _ = marks[i + 1]
            if 0 <= following.start - mark.end <= (mark.end - mark.start) / 10 and following.thread == mark.thread:
                end = begins
        steps.append(GraphStep(mark.name, begin, end, end.end - begin.end))
    return steps


def graph_notes(trace: RecordedTrace, work: list[OpTiming], unmatched: int, rules: Counter[str]) -> tuple[str, ...]:
    """Notes on what the graph could not explain, and how its waits were found."""
    notes = [*trace.notes]
    lost = sum(each.launch is None for each in work)
    early = sum(
        each.launch is not None and op.start < each.launch.end - 1e-9 for op, each in zip(trace.ops, work, strict=True)
    )
    unseen = sum(each.unseen for each in work)  # seconds
    if not trace.steps:
        notes.append("no ProfilerStep in the trace: the whole capture is taken for one step")
    if not work:
        notes.append("no work of a device in the trace: the host's threads only")
    if lost:
        notes.append(
            f"{lost} operations of the device have no launch in the trace before them: "
            "they follow their predecessor on the stream"
        )
    if early:
        notes.append(f"{early} operations begin before their launch does: the clocks of host and device disagree")
    if unmatched:
        notes.append(
            f"{unmatched} calls that synchronise wait for nothing that the trace shows: "
            "their time beyond that of other such calls is unseen"
        )
    if rules:
        by_rule = ", ".join(f"{count} {rule}" for rule, count in sorted(rules.items()))
        notes.append(f"waits between streams were found {by_rule}")
    if unseen:
        notes.append(
            f"{unseen:.6f} s of streams lie before operations and are not explained by anything found in the trace"
        )
    return tuple(notes)
