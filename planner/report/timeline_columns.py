"""Encodes timelines as columns of small integers, in which repeated values are stored once.

Ranks with the same events share a lane, lanes that differ only in their groups share a pattern, and events that differ
only in their start share a kind. Times count ticks: the smallest power of ten seconds that leaves the longest step
below 10⁸ of them, finer than any screen. `assets/decode.js` reads it.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from planner.plan.mesh.identical_groups import representative_ranks
from planner.report.page_step import PageStep, TaskFact, task_counts
from planner.simulate import Curve, TaskEvent, Timeline, waits_for_modules
from planner.specs.base import Ranks
from planner.units import KIB

STEP = -1  # stands for the micro-batch of tasks that run once a step
WHOLE = 1000  # ‰ of a device; columns leave it out
FINEST = 1e8  # ticks of the longest step

Mark = tuple[int, int, int, int]  # kind, micro-batch, group, start
LaneWaits = tuple[
    tuple[int, ...], tuple[int, ...], tuple[int, ...]
]  # columns: module, ticks since the one before, ticks

K = TypeVar("K", bound=Hashable)
RunLengths = list[list[int]]  # [first rank, count, value]


class Interned(Generic[K]):
    """Numbers values in the order of their first use."""

    def __init__(self) -> None:
        self.numbers: dict[K, int] = {}
        self.values: list[K] = []

    def __getitem__(self, value: K) -> int:
        if value not in self.numbers:
            self.numbers[value] = len(self.values)
            self.values.append(value)
        return self.numbers[value]


class TaskPrefix(NamedTuple):
    """The part of a task's id before its micro-batch: `llm[0-31]/F`."""

    text: str
    phase: str
    module: str


class EventKind(NamedTuple):
    """What events have in common that differ only in start and micro-batch."""

    name: int
    ticks: int
    comm: int  # ticks of these during which the device waits for communication
    source: str
    spread: int  # ‰
    tokens: int
    share: int = WHOLE  # ‰ of the device


LanePattern = tuple[
    tuple[int, ...], ...
]  # columns: kind, micro-batch, slot of a lane's groups, ticks since the one before


class TimelineColumns:
    """The encoded timelines of a page."""

    def __init__(self, steps: Sequence[PageStep]) -> None:
        longest = max((shown.timeline.step_seconds for shown in steps), default=0.0)
        self.tick = 10.0 ** math.ceil(math.log10(longest / FINEST)) if longest > 0 else 1e-9
        self.names: Interned[TaskPrefix] = Interned()
        self.groups: Interned[str] = Interned()
        self.kinds: Interned[EventKind] = Interned()
        self.patterns: Interned[LanePattern] = Interned()
        self.lanes: Interned[tuple[int, ...]] = Interned()  # pattern, then its groups
        self.curves: Interned[tuple[tuple[int, ...], tuple[int, ...]]] = Interned()
        self.known: dict[Curve, int] = {}  # curves encoded so far
        self.waits: Interned[LaneWaits] = Interned()
        self.waited: Interned[str] = Interned()  # modules that lanes wait for
        self.lane_waits: dict[int, int] = {}  # lane → what it waits for
        self.steps = [self.step(shown) for shown in steps]

    def data(self) -> dict[str, Any]:
        """The tables that the page's script reads."""
        return {
            "tick": self.tick,
            "names": [[*name] for name in self.names.values],
            "groups": self.groups.values,
            "kinds": [[*kind[:-1], *([kind.share] if kind.share < WHOLE else [])] for kind in self.kinds.values],
            "patterns": [[[*column] for column in pattern] for pattern in self.patterns.values],
            "rows": [[*lane] for lane in self.lanes.values],
            "curves": [[[*column] for column in curve] for curve in self.curves.values],
            "waits": [[[*column] for column in waits] for waits in self.waits.values],
            "waited": self.waited.values,
            "rowWaits": [self.lane_waits.get(lane, -1) for lane in range(len(self.lanes.values))],
            "steps": self.steps,
        }

    def ticks(self, seconds: float) -> int:
        return round(seconds / self.tick)

    def step(self, shown: PageStep) -> dict[str, Any]:
        events = shown.timeline.events
        marks = [self.mark(event, shown.facts.get(event.id)) for event in events]
        lane_of = self.lanes_by_rank(shown, marks)
        self.add_waits(shown.timeline, lane_of)
        columns: dict[str, Any] = {
            "title": shown.title,
            "label": shown.label,
            "end": self.ticks(shown.timeline.step_seconds),
            "count": round(sum(task_counts(shown.timeline))),
            "ranks": run_lengths([lane_of.get(rank, -1) for rank in range(shown.timeline.ranks)]),
            "path": self.path(shown),
            "items": self.items(shown),
        }
        if shown.memory:
            columns["memory"] = run_lengths([self.curve(curve) for curve in shown.memory.curves])
        return columns

    def add_waits(self, timeline: Timeline, lane_of: Mapping[int, int]) -> None:
        """Encode when each lane waits for another module: as columns of modules, starts and lengths."""
        alike = {lane: rank for rank, lane in sorted(lane_of.items(), reverse=True)}  # a rank of each lane
        simulated = {lane: timeline.representative_of(rank) for lane, rank in alike.items()}
        waits_of = waits_for_modules(timeline, sorted({*simulated.values()}))
        for lane, rank in simulated.items():
            waits = [
                (self.waited[each.module], self.ticks(each.start), self.ticks(each.end)) for each in waits_of[rank]
            ]
            visible = [wait for wait in waits if wait[2] > wait[1]]
            if visible:
                modules, starts, ends = zip(*visible, strict=True)
                lengths = tuple(end - start for start, end in zip(starts, ends, strict=True))
                self.lane_waits[lane] = self.waits[modules, differences(starts), lengths]

    def mark(self, event: TaskEvent, fact: TaskFact | None) -> Mark:
        """Encode an event as kind, micro-batch, group and start."""
        text, micro_batch, group = split_task_id(event.id, fact)
        name = self.names[TaskPrefix(text, event.phase, event.module)]
        kind = EventKind(
            name=name,
            ticks=self.ticks(event.seconds),
            comm=self.ticks(event.comm),
            source=event.source,
            spread=round(event.spread * 1000),
            tokens=fact.tokens if fact else 0,
            share=round(fact.share * WHOLE) if fact else WHOLE,
        )
        return self.kinds[kind], micro_batch, self.groups[group], self.ticks(event.start)

    def lanes_by_rank(self, shown: PageStep, marks: Sequence[Mark]) -> dict[int, int]:
        """Each rank that has a task → its lane; a rank that was not simulated has the lane of the rank it equals."""
        events, like = shown.timeline.events, shown.timeline.representative_rank
        sets = {event.ranks: Ranks(rank for rank in event.ranks if rank not in like) for event in events}
        first_alike = representative_ranks(sets.values())
        of_first: dict[int, list[Mark]] = {rank: [] for rank in set(first_alike.values())}
        lists = {
            ranks: [rank for rank in simulated_ranks if rank in of_first] for ranks, simulated_ranks in sets.items()
        }
        for event, mark in zip(events, marks, strict=True):
            for rank in lists[event.ranks]:
                of_first[rank].append(mark)
        lanes = {rank: self.lane(of_rank) for rank, of_rank in sorted(of_first.items())}
        simulated = {rank: lanes[first] for rank, first in first_alike.items()}
        copies = groups_of_copies(shown.timeline)
        copied = {
            rank: self.copied_lane(simulated[of], copies.get(rank, {})) for rank, of in like.items() if of in simulated
        }
        return simulated | copied

    def copied_lane(self, lane: int, copies: Mapping[str, str]) -> int:
        """The lane of a simulated rank, with the groups of a rank that equals it."""
        pattern, *groups = self.lanes.values[lane]
        names = [self.groups.values[group] for group in groups]
        renamed = (pattern, *(self.groups[copies.get(name, name)] for name in names))
        return self.lanes[renamed]

    def lane(self, marks: list[Mark]) -> int:
        """Encode the events of a rank, sorted by time."""
        marks.sort(key=lambda mark: mark[3])
        slots: Interned[int] = Interned()
        kinds, micro_batches, groups, starts = zip(*marks, strict=True)
        slot = tuple(slots[group] for group in groups)
        whole = (self.patterns[kinds, micro_batches, slot, differences(starts)], *slots.values)
        return self.lanes[whole]

    def path(self, shown: PageStep) -> list[list[int]]:
        """The critical path as columns: name, micro-batch, group; empty for a recording, which has no causes."""
        if not any(event.cause for event in shown.timeline.events):
            return [[], [], []]
        tasks = []
        for event in shown.timeline.critical_path():
            text, micro_batch, group = split_task_id(event.id, shown.facts.get(event.id))
            tasks.append((self.names[TaskPrefix(text, event.phase, event.module)], micro_batch, self.groups[group]))
        return [[*column] for column in zip(*tasks, strict=True)]

    def items(self, shown: PageStep) -> dict[str, list[list[int]]]:
        """Items and their tokens, by module, micro-batch and group."""
        return {
            f"{work.module}/{work.micro_batch}/{self.groups[work.group]}": [[*work.items], [*work.sizes]]
            for work in shown.group_items
        }

    def curve(self, points: Curve) -> int:
        """Encode a curve of memory as ticks and KiB, each relative to the point before."""
        if points not in self.known:
            times, sizes = zip(*((self.ticks(seconds), round(size / KIB)) for seconds, size in points), strict=True)
            self.known[points] = self.curves[differences(times), differences(sizes)]
        return self.known[points]


def groups_of_copies(timeline: Timeline) -> dict[int, dict[str, str]]:
    """For ranks that were not simulated: each simulated group → their own group that does the same."""
    of_groups = {
        groups: {timeline.representative_group[group]: group for group in groups}
        for groups in dict.fromkeys(timeline.groups_of.values())
    }
    return {rank: of_groups[groups] for rank, groups in timeline.groups_of.items()}


def differences(values: tuple[int, ...]) -> tuple[int, ...]:
    """Differences of neighbours; the first value stays."""
    return tuple(value - before for value, before in zip(values, (0, *values[:-1]), strict=True))


def split_task_id(task_id: str, fact: TaskFact | None) -> tuple[str, int, str]:
    """Split `llm[0-31]/F/2/g0-7` into `llm[0-31]/F`, 2, `g0-7`; the group's name may contain anything."""
    group = fact.group if fact and task_id.endswith(f"/{fact.group}") else task_id.rpartition("/")[2]
    text, _, micro_batch = task_id.removesuffix(group).removesuffix("/").rpartition("/")
    return text, int(micro_batch) if micro_batch.isdecimal() else STEP, group


def run_lengths(values: Sequence[int]) -> RunLengths:
    """Runs of equal neighbours, each as its first rank, its length and its value."""
    runs: RunLengths = []
    for rank, value in enumerate(values):
        if runs and runs[-1][2] == value:
            runs[-1][1] += 1
        else:
            runs.append([rank, 1, value])
    return runs
