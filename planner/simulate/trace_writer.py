"""Writes timelines as a Chrome trace for ui.perfetto.dev: a process per rank, a thread per stream, a slice per task.

Simulated and measured timelines have the same format, side by side when both are given; steps follow one another.
Times are in microseconds. `simulate/trace_reader.py` reads these files. Drawn ranks that were not simulated get tasks
and events of their own, copied from the group that represents theirs.
"""

import gzip
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.files import write_bytes
from planner.plan.task import Task
from planner.simulate.timeline import TaskEvent, Timeline
from planner.simulate.trace_records import (
    GroupColours,
    TracedStep,
    TraceRecord,
    TraceSide,
    choose_drawn_ranks,
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


def expand_groups(traced: TracedStep, ranks: Collection[int]) -> TracedStep:
    """The step with events for each of these ranks, whether it was simulated or not.

    A copied task keeps the items of the simulated group: as many and of the same lengths, but not the same ones. In
    the result, each group that none of these ranks is in is represented by one that some of them are in.
    """
    timeline = traced.timeline
    if not timeline.representative_group:
        return traced
    group_of = {task.id: task.group for task in traced.tasks}
    wanted = dict.fromkeys(timeline.groups_of[rank] for rank in ranks if rank in timeline.groups_of)
    own = {each: GroupsCopy({timeline.representative_group[name]: name for name in each}, group_of) for each in wanted}
    for rank, groups in timeline.groups_of.items():
        if groups in own:
            own[groups].rank[timeline.representative_rank[rank]] = rank
    copies: dict[str, list[GroupsCopy]] = {}  # by the simulated group
    for copy in own.values():
        for simulated in copy.groups:
            copies.setdefault(simulated, []).append(copy)
    tasks, events = list[Task](), list[TaskEvent]()
    for task in traced.tasks:
        tasks += [task, *(each.task(task) for each in copies.get(task.group, ()))]
    for event in timeline.events:
        events += [event, *(each.event(event) for each in copies.get(group_of[event.id], ()))]
    whole = Timeline(
        events=tuple(events),
        step_seconds=timeline.step_seconds,
        ranks=timeline.ranks,
        representative_rank={
            rank: like for rank, like in timeline.representative_rank.items() if timeline.groups_of[rank] not in own
        },
        representative_group=rename_representatives(timeline.representative_group, tasks, ranks),
        groups_of={rank: groups for rank, groups in timeline.groups_of.items() if groups not in own},
    )
    return replace(traced, timeline=whole, tasks=tuple(tasks))


class GroupsCopy:
    """Groups that were not simulated, as copies of those that represent them."""

    def __init__(self, groups: Mapping[str, str], group_of: Mapping[str, str]) -> None:
        self.groups, self.group_of = groups, group_of  # simulated group → its copy; id of a simulated task → its group
        self.rank: dict[int, int] = {}  # rank of the simulated groups → rank of these groups in the same position

    def task(self, of: Task) -> Task:
        after = tuple(self.id(awaited) for awaited in of.after)
        return of.changed(
            group=self.groups[of.group], ranks=self.ranks(of.ranks), peers=self.ranks(of.peers), after=after
        )

    def event(self, of: TaskEvent) -> TaskEvent:
        return of._replace(id=self.id(of.id), ranks=self.ranks(of.ranks), cause=self.id(of.cause))

    def id(self, of: str) -> str:
        group = self.group_of.get(of, "")
        return of.removesuffix(group) + self.groups[group] if group in self.groups else of

    def ranks(self, of: Ranks) -> Ranks:
        return Ranks(self.rank.get(rank, rank) for rank in of)


def rename_representatives(groups: dict[str, str], tasks: Collection[Task], ranks: Collection[int]) -> dict[str, str]:
    """For each group without a task on `ranks`, a group of the same kind that has one.

    `groups`: each group → the simulated group that represents it.
    """
    asked = {*ranks}
    there = {task.group for task in tasks if not asked.isdisjoint(task.ranks)}
    kinds = {**groups, **{simulated: simulated for simulated in groups.values()}}
    first: dict[str, str] = {}
    for group, kind in kinds.items():
        if group in there:
            first.setdefault(kind, group)
    return {group: first[kind] for group, kind in kinds.items() if kind in first and group not in there}
