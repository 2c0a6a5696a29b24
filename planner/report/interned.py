"""Interning and difference coding: repeated values stored once, and small integers for large ones."""

from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from planner.report.page_step import TaskFact

STEP = -1  # stands for the micro-batch of tasks that run once a step

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


LanePattern = tuple[
    tuple[int, ...], ...
]  # columns: kind, micro-batch, slot of a lane's groups, ticks since the one before


def differences(values: tuple[int, ...]) -> tuple[int, ...]:
    """Differences of neighbours; the first value stays."""
    return tuple(value - before for value, before in zip(values, (0, *values[:-1]), strict=True))


def split_task_id(task_id: str, fact: TaskFact | None) -> tuple[str, int, str]:
    """Split `llm[0-31]/F/2/g0-7` into `llm[0-31]/F`, 2, `g0-7`; the group's name may contain anything."""
    group = fact.group if fact and task_id.endswith(f"/{fact.group}") else task_id.rpartition("/")[2]
    text, _, micro_batch = task_id.removesuffix(group).removesuffix("/").rpartition("/")
    return text, int(micro_batch) if micro_batch.isdecimal() else STEP, group


def run_lengths(values: Sequence[int]) -> RunLengths:
    """Run-length encoding."""
    found: RunLengths = []
    for rank, value in enumerate(values):
        if found and found[-1][2] == value:
            found[-1][1] += 1
        else:
            found.append([rank, 1, value])
    return found
