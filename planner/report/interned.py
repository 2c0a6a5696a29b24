"""What repeats, once and by number; and small integers instead of large ones."""

from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from planner.report.shown import Fact

STEP = -1  # the micro-batch of what happens once a step

K = TypeVar("K", bound=Hashable)
Runs = list[list[int]]  # [first rank, how many, of what]


class Interned(Generic[K]):
    """Values by number, in the order in which they came."""

    def __init__(self) -> None:
        self.numbers: dict[K, int] = {}
        self.values: list[K] = []

    def __getitem__(self, value: K) -> int:
        if value not in self.numbers:
            self.numbers[value] = len(self.values)
            self.values.append(value)
        return self.numbers[value]


class Name(NamedTuple):
    """What a task's id says before its micro-batch: `llm[0-31]/F`."""

    text: str
    phase: str
    module: str


class Kind(NamedTuple):
    """What events have in common that differ in nothing but when and for which micro-batch they ran."""

    name: int
    ticks: int
    comm: int  # ticks of these in which the device waits for communication
    source: str
    spread: int  # ‰
    tokens: int


Pattern = tuple[tuple[int, ...], ...]  # columns: kind, micro-batch, slot of a row's groups, ticks since the one before


def since(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(value - before for value, before in zip(values, (0, *values[:-1]), strict=True))


def parts(task_id: str, fact: Fact | None) -> tuple[str, int, str]:
    """`llm[0-31]/F/2/g0-7` as `llm[0-31]/F`, 2, `g0-7`; the group's own name may hold anything."""
    group = fact.group if fact and task_id.endswith(f"/{fact.group}") else task_id.rpartition("/")[2]
    text, _, row = task_id.removesuffix(group).removesuffix("/").rpartition("/")
    return text, int(row) if row.isdecimal() else STEP, group


def runs(values: Sequence[int]) -> Runs:
    """Neighbours of one value together."""
    found: Runs = []
    for rank, value in enumerate(values):
        if found and found[-1][2] == value:
            found[-1][1] += 1
        else:
            found.append([rank, 1, value])
    return found
