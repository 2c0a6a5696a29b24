"""Records of a Chrome trace for one side of a comparison: slices, arrows from sends to receives, memory counters.

A trace draws all ranks, those asked for, or in a large job one representative of each kind.

Slices have the colour of their group, in both viewers. chrome://tracing takes a colour name from `cname`.
ui.perfetto.dev ignores it and derives the colour from the name of the slice without its digits; so where names of
groups differ in digits only, letters are appended: `… b`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from planner.plan.mesh.identical_groups import MAX_UNFOLDED_RANKS, representative_ranks
from planner.plan.task import PHASE_STREAMS, Task
from planner.simulate.memory_curves import MemoryCurves
from planner.simulate.timeline import TaskEvent, Timeline
from planner.specs.base import Ranks
from planner.units import US, gib


@dataclass(frozen=True, slots=True)
class DrawnRanks:
    """The drawn ranks, each with the ranks it stands for: they do the same at the same time in all timelines."""

    stands_for: dict[int, Ranks]  # drawn rank → ranks it represents, itself included
    representative: dict[int, int]  # rank → the drawn rank that does the same
    job_size: int  # of the job

    @property
    def all_drawn(self) -> bool:
        return len(self.stands_for) == self.job_size

    def drawn_among(self, ranks: Ranks) -> list[int]:
        """The drawn ranks among these."""
        return [rank for rank in ranks if rank in self.stands_for]


def choose_drawn_ranks(timelines: Sequence[Timeline], only: Ranks | None = None) -> DrawnRanks:
    """Choose the ranks to draw; `only`: those asked for, where ranks beyond the size of the job are ignored."""
    size = max(timeline.ranks for timeline in timelines)
    if only is not None:
        return draw_each([rank for rank in only if rank < size], size)
    if size <= MAX_UNFOLDED_RANKS and not any(timeline.representative_rank for timeline in timelines):
        return draw_each(range(size), size)
    kinds = [representatives_of_ranks(timeline) for timeline in timelines]
    by_kind: dict[tuple[int, ...], list[int]] = {}
    for rank in range(size):
        by_kind.setdefault(tuple(kind[rank] for kind in kinds), []).append(rank)
    stands_for = {ranks[0]: Ranks(ranks) for ranks in by_kind.values()}
    return DrawnRanks(stands_for, {rank: first for first, ranks in stands_for.items() for rank in ranks}, size)


def draw_each(ranks: Sequence[int], size: int) -> DrawnRanks:
    """Draw each of these ranks for itself."""
    return DrawnRanks({rank: Ranks((rank,)) for rank in ranks}, {rank: rank for rank in ranks}, size)


def representatives_of_ranks(timeline: Timeline) -> list[int]:
    """For each rank, the lowest rank with the same tasks; −1 if it has none."""
    kind = representative_ranks(
        Ranks(r for r in event.ranks if r not in timeline.representative_rank) for event in timeline.events
    )
    return [kind.get(timeline.representative_of(rank), -1) for rank in range(timeline.ranks)]


IGNORED_DIGITS = re.compile(r" ?\d+")  # removed by Perfetto from a slice's name before it chooses the colour
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CHROME_COLOURS = (  # colour names of chrome://tracing (catapult, tracing/base/color_scheme.html)
    "thread_state_running",
    "rail_response",
    "thread_state_iowait",
    "detailed_memory_dump",
    "rail_load",
    "rail_animation",
    "cq_build_passed",
    "rail_idle",
    "olive",
    "cq_build_failed",
    "generic_work",
    "yellow",
)


class GroupColours:
    """Assigns colours to groups in the order of their names, the same in all steps and on both sides."""

    def __init__(self, groups: Iterable[str]) -> None:
        self.number = {group: number for number, group in enumerate(sorted({*groups}))}
        self.names_differ = len({IGNORED_DIGITS.sub("", group) for group in self.number}) == len(self.number)

    def slice_name(self, task: str, group: str) -> str:
        """Name of the slice of a task."""
        return task if self.names_differ else f"{task} {letters(self.number[group])}"

    def colour(self, group: str) -> str:
        return CHROME_COLOURS[self.number[group] % len(CHROME_COLOURS)]


def letters(number: int) -> str:
    """A number as letters, like the columns of a spreadsheet: 0 → a, 25 → z, 26 → aa."""
    spelled = ""
    while number >= 0:
        spelled = LETTERS[number % 26] + spelled
        number = number // 26 - 1
    return spelled


TimeLabel = Literal["measured", "simulated"]
TraceRecord = dict[str, Any]
ThreadNumbers = dict[tuple[int, str], int]  # (rank, name of the thread) → thread number


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One step to write into a trace."""

    timeline: Timeline
    tasks: Sequence[Task]
    label: TimeLabel  # whether its times are measured or simulated
    memory: MemoryCurves | None = None
    step: int = 0  # number of the step in the plan
    run_step: int | None = None  # number of the step in the run


@dataclass(frozen=True, slots=True)
class TraceSide:
    """Writes the steps of one label, measured or simulated, as trace records."""

    first_process: int  # process number of rank 0
    threads: ThreadNumbers
    drawn: DrawnRanks
    colours: GroupColours

    def name_records(self, suffix: str, order: int, sides: int) -> Iterator[TraceRecord]:
        """Name and sort processes and threads; the two sides of a rank are adjacent."""
        for rank, alike in self.drawn.stands_for.items():
            who = f"rank {rank}{suffix}" + (f" (as ranks {alike})" if len(alike) > 1 else "")
            yield self.metadata("process_name", rank, {"name": who})
            yield self.metadata("process_sort_index", rank, {"sort_index": rank * sides + order})
        for (rank, name), number in self.threads.items():
            yield {**self.metadata("thread_name", rank, {"name": name}), "tid": number}
            yield {**self.metadata("thread_sort_index", rank, {"sort_index": number}), "tid": number}

    def metadata(self, name: str, rank: int, args: TraceRecord) -> TraceRecord:
        return {"ph": "M", "name": name, "pid": self.first_process + rank, "args": args}

    def step_records(self, traced: TracedStep, start: float, number: int, arrows_before: int) -> Iterator[TraceRecord]:
        """Records of one step that begins at `start` microseconds and is the trace's `number`-th."""
        by_id = {task.id: task for task in traced.tasks}
        for event in traced.timeline.events:
            yield from self.slice_records(event, by_id[event.id], self.drawn.drawn_among(event.ranks), start, number)
        yield from self.arrow_records(traced.timeline, by_id, start, arrows_before)
        yield from self.memory_records(traced.memory, start) if traced.memory else ()

    def slice_records(
        self, event: TaskEvent, task: Task, ranks: list[int], start: float, number: int
    ) -> Iterator[TraceRecord]:
        """One slice for each of these ranks."""
        begun, ended = to_microseconds(event.start), to_microseconds(event.end)
        args = slice_args(event, task) | ({"step": number} if number else {})
        for rank in ranks:
            yield {
                "ph": "X",
                "name": self.colours.slice_name(event.id, task.group),
                "cat": event.phase,
                "cname": self.colours.colour(task.group),
                "pid": self.first_process + rank,
                "tid": self.threads[rank, thread_name(task)],
                "ts": round(start + begun, 3),
                "dur": round(ended - begun, 3),
                "args": args,
            }

    def arrow_records(
        self, timeline: Timeline, by_id: dict[str, Task], start: float, before: int
    ) -> Iterator[TraceRecord]:
        """One arrow for each receiving rank, from the send that it receives."""
        sent = {(event.id, rank): event for event in timeline.events if event.phase == "send" for rank in event.ranks}
        number = before
        for event in timeline.events:
            task = by_id[event.id]
            sends = [by_id[awaited] for awaited in task.after if event.phase == "recv" and awaited in by_id]
            sources = [(send, rank) for send in sends if send.phase == "send" for rank in send.ranks]
            for rank in self.drawn.drawn_among(event.ranks) if sources else ():
                send, sender = sources[task.ranks.index(rank) % len(sources)]
                tail = self.drawn.representative.get(sender, -1), thread_name(send)
                if tail in self.threads and (send.id, sender) in sent:
                    number += 1
                    begun = start + to_microseconds(sent[send.id, sender].start)
                    yield self.arrow_end("s", number, tail[0], self.threads[tail], begun)
                    head = self.threads[rank, thread_name(task)]
                    yield {**self.arrow_end("f", number, rank, head, start + to_microseconds(event.start)), "bp": "e"}

    def arrow_end(self, which: str, number: int, rank: int, tid: int, at: float) -> TraceRecord:
        place = {"pid": self.first_process + rank, "tid": tid, "ts": round(at, 3)}
        return {"ph": which, "name": "transfer", "cat": "transfer", "id": number, **place}

    def memory_records(self, memory: MemoryCurves, start: float) -> Iterator[TraceRecord]:
        for rank in self.drawn.stands_for:
            for seconds, held in memory.curves[rank]:
                at = round(start + to_microseconds(seconds), 3)
                yield {
                    "ph": "C",
                    "name": "memory",
                    "pid": self.first_process + rank,
                    "ts": at,
                    "args": {"GiB": gib(held)},
                }


def slice_args(event: TaskEvent, task: Task) -> TraceRecord:
    """The `args` of a slice; fields at their default are left out."""
    args: TraceRecord = {
        "task": event.id,
        "module": event.module,
        "group": task.group,
        "items": len(task.items),
        "tokens": task.tokens,
        "source": event.source,
    }
    if event.comm:
        args["comm_ms"] = round(event.comm * 1e3, 6)
    if event.spread:
        args["spread"] = event.spread
    if event.cause:
        args["cause"] = event.cause
    return args


def thread_name(task: Task) -> str:
    """Each stream is a thread; groups that share a device run concurrently, so each has its own compute thread."""
    return task.stream if task.share == 1 or task.stream != "compute" else f"{task.stream} {task.group}"


def number_threads(steps: Iterable[TracedStep], drawn: DrawnRanks) -> ThreadNumbers:
    """Number the threads of each drawn rank: streams in their usual order, then by name."""
    streams = [*dict.fromkeys(PHASE_STREAMS.values())]
    found = set()
    for traced in steps:
        by_id = {task.id: task for task in traced.tasks}
        for event in traced.timeline.events:
            name = thread_name(by_id[event.id])
            found |= {(rank, name) for rank in drawn.drawn_among(event.ranks)}
    ordered = sorted(found, key=lambda key: (key[0], streams.index(key[1].partition(" ")[0]), key[1]))
    first = {rank: number for number, (rank, _) in reversed([*enumerate(ordered)])}
    return {(rank, name): number - first[rank] for number, (rank, name) in enumerate(ordered)}


def to_microseconds(seconds: float) -> float:
    """Seconds in microseconds, rounded to the nanosecond so that no slice starts before its predecessor ends."""
    return round(seconds / US, 3)
