"""Writes timelines as a Chrome trace for ui.perfetto.dev: a process per rank, a thread per stream, a slice per task.

Simulated and measured timelines have the same format, side by side when both are given; steps follow one another.
Times are in microseconds. `simulate/trace_reader.py` reads these files.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from planner.files import write_bytes
from planner.simulate.drawn_ranks import choose_drawn_ranks
from planner.simulate.expanded_groups import expand_groups
from planner.simulate.trace_colours import GroupColours
from planner.simulate.trace_records import (
    TracedStep,
    TraceRecord,
    TraceSide,
    number_threads,
    to_microseconds,
)
from planner.specs.base import Ranks

FORMAT = "planner.trace/1"


def build_trace(steps: Sequence[Sequence[TracedStep]], plan: str, only: Ranks | None = None) -> TraceRecord:
    """A trace of steps one after the other, each with one or two sides: simulated, measured, or both.

    `only`: the ranks to draw; by default all, or in a large job one representative of each kind.
    """
    drawn = choose_drawn_ranks([traced.timeline for sides in steps for traced in sides], only)
    steps = [[expand_groups(traced, drawn.stands_for) for traced in sides] for sides in steps]
    each = [traced for sides in steps for traced in sides]
    colours = GroupColours(task.group for traced in each for task in traced.tasks if drawn.drawn_among(task.ranks))
    starts = [*step_starts(steps)]
    records = [*step_marks(steps, starts)] if len(steps) > 1 else []
    records += round_marks(steps, starts)
    of_labels = [*zip(*steps, strict=True)]
    for order, of_label in enumerate(of_labels):
        side = TraceSide(order * drawn.job_size, number_threads(of_label, drawn), drawn, colours)
        records += side.name_records(f" {of_label[0].label}" if len(of_labels) > 1 else "", order, len(of_labels))
        for number, (traced, start) in enumerate(zip(of_label, starts, strict=True)):
            records += side.step_records(traced, start, number, len(records))
    return {
        "traceEvents": records,
        "displayTimeUnit": "ms",
        "otherData": {
            "planner": "both" if len(of_labels) > 1 else each[0].label,
            "format": FORMAT,
            "plan": plan,
            "ranks": drawn.job_size,
            "step_seconds": each[0].timeline.step_seconds,
            "steps": [step_entry(sides[0], start) for sides, start in zip(steps, starts, strict=True)],
            **({} if drawn.all_drawn else {"stands_for": {str(r): str(of) for r, of in drawn.stands_for.items()}}),
        },
    }


def step_starts(steps: Sequence[Sequence[TracedStep]]) -> Iterator[float]:
    """Start of each step in microseconds: when all sides of the previous one have ended."""
    start = 0.0
    for sides in steps:
        yield start
        start = round(start + max(to_microseconds(side.timeline.step_seconds) for side in sides), 3)


def step_marks(steps: Sequence[Sequence[TracedStep]], starts: Sequence[float]) -> Iterator[TraceRecord]:
    """A track above all ranks with one slice per step."""
    pid = sum(max(side.timeline.ranks for side in sides) for sides in zip(*steps, strict=True))
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": "steps"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": -1}}
    for sides, start in zip(steps, starts, strict=True):
        for at, side in enumerate(sides):
            number = side.step if side.run_step is None else side.run_step
            length = to_microseconds(side.timeline.step_seconds)
            name = f"step {number} {side.label}"
            yield {"ph": "X", "name": name, "cat": "step", "pid": pid, "tid": at, "ts": start, "dur": length}


def round_marks(steps: Sequence[Sequence[TracedStep]], starts: Sequence[float]) -> Iterator[TraceRecord]:
    """A track above all ranks with a slice where equal rounds are left out."""
    pid = sum(max(side.timeline.ranks for side in sides) for sides in zip(*steps, strict=True)) + 1
    found = [(side.left_out, start) for sides, start in zip(steps, starts, strict=True) for side in sides]
    marks = [(left_out, start) for left_out, start in found if left_out]
    if marks:
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": "left out"}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": -1}}
    for left_out, start in marks:
        name = f"{left_out.rounds} rounds of {left_out.micro_batches} micro-batches, each like the one before"
        at, length = start + to_microseconds(left_out.start), to_microseconds(left_out.seconds)
        yield {"ph": "X", "name": name, "cat": "step", "pid": pid, "tid": 0, "ts": round(at, 3), "dur": length}


def step_entry(traced: TracedStep, start: float) -> TraceRecord:
    """The entry of a step in the header of the trace."""
    fields: TraceRecord = {"plan_step": traced.step, "start_us": start, "seconds": traced.timeline.step_seconds}
    if traced.run_step is not None:
        fields["run_step"] = traced.run_step
    if traced.timeline.representative_group:
        fields["groups_alike"] = traced.timeline.representative_group
    return fields


def trace_json(trace: TraceRecord) -> str:
    """A trace as JSON text, one record per line."""
    head = {key: value for key, value in trace.items() if key != "traceEvents"}
    records = ",\n".join(json.dumps(record, separators=(",", ":")) for record in trace["traceEvents"])
    return f'{json.dumps(head)[:-1]}, "traceEvents": [\n{records}\n]}}\n'


def write_trace(path: Path, trace: TraceRecord) -> None:
    """Write a trace atomically, gzipped when the name ends in .gz; Perfetto opens both."""
    raw = trace_json(trace).encode()
    write_bytes(path, gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
