"""The execution graph of a trace: segments of host threads, device operations, and who waits for whom."""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from planner.replay.handover import handovers
from planner.replay.inter_stream import InterStream
from planner.replay.launches import Queues, launch, queue_times
from planner.replay.pace import Work, timed
from planner.replay.pieces import Piece, Threads
from planner.replay.synchronise import synchronise
from planner.replay.trace import Mark, Trace


class Step(NamedTuple):
    """A training step with the segments that end at its beginning and at its end."""

    name: str
    begin: Piece
    end: Piece
    seconds: float  # as measured


@dataclass(frozen=True, slots=True)
class Graph:
    """The execution graph of one rank."""

    trace: Trace
    pieces: list[Piece]
    work: list[Work]
    by: list[int]  # the call that launched each operation; −1: unmatched
    steps: list[Step]
    found: dict[str, int]  # number of dependencies of each kind
    notes: tuple[str, ...]


def build(trace: Trace) -> Graph:
    """Build the execution graph of a trace: find all dependencies and the timing of every operation."""
    threads, counts = Threads(len(trace.threads)), Counter[str]()
    queued_at, calls = queue_times(trace)
    queues = Queues(trace, queued_at)
    launching = launch(trace, threads, queues, queued_at, calls)
    unmatched = synchronise(trace, threads, queues, calls)
    counts["threads"] = handovers(trace, threads)
    marks = marked(trace, threads)  # last, so that step segments come after others that end together
    between = InterStream(trace, queues, queued_at, calls)
    between.by_calls()
    work = timed(trace, queued_at, launching, between)
    all_segments = threads.done([op.end for op in trace.ops])
    counts["launch"] = sum(segment is not None for segment in launching)
    counts["synchronise"] = sum(segment.synchronises for segment in all_segments)
    counts["inter-stream"] = sum(between.found.values())
    notes = remarks(trace, work, unmatched, between.found)
    return Graph(trace, all_segments, work, calls, steps_of(marks), dict(counts), notes)


def marked(trace: Trace, threads: Threads) -> list[tuple[Mark, Piece, Piece]]:
    """Each step with segments that end at its beginning and at its end; without steps, the whole capture is one."""
    whole = Mark("the whole capture", 0, 0.0, trace.end)
    marks = trace.steps or ((whole,) if len(trace.threads) else ())
    segments = []
    for mark in marks:
        begin = threads.cut(mark.thread, mark.start)
        segments.append((mark, begin, threads.cut(mark.thread, mark.end)))
    return segments


def steps_of(marks: list[tuple[Mark, Piece, Piece]]) -> list[Step]:
    """Each step extends to the beginning of the next one; the last, and one before a pause, to its own end."""
    steps = []
    for i, (mark, begin, end) in enumerate(marks):
        if i + 1 < len(marks):
            following, begins, _ = marks[i + 1]
            if 0 <= following.start - mark.end <= (mark.end - mark.start) / 10 and following.thread == mark.thread:
                end = begins
        steps.append(Step(mark.name, begin, end, end.end - begin.end))
    return steps


def remarks(trace: Trace, work: list[Work], unmatched: int, rules: Counter[str]) -> tuple[str, ...]:
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
