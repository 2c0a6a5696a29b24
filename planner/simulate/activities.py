"""What the clock runs: activities that hold lanes, move bytes over links, take from stores, and wait for each other.

One form for the tasks of a plan and for the operators of a trace:

- a lane is whatever lets activities in one after the other: a stream of a device, a thread of its host. Its queue is in
  order of arrival: at the beginning all activities that nothing queues, as they are numbered; then each one as what
  queues it ends. So the order within a lane is fixed where a program fixes it, and found while the clock runs where a
  host decides, as of kernels on a stream. From the head of its queues an activity gets its share of the lanes, and it
  starts when all of them have let it in and all that it waits for has ended; of a sharer a lane holds one at a time.
- a link gives each transfer on it an equal part of its bandwidth; a transfer goes as fast as its slowest link lets it.
- a store has so much of something (bytes of memory); what an activity takes is there when it starts, and what it gives
  is there when it ends. Whoever waits for a store is served in turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

NOBODY = -1  # of what queues an activity, of its sharer, of the cause of its start


class Lists(NamedTuple):
    """A list of numbers for each activity: those of i are `of[first[i]:first[i + 1]]`."""

    first: Numbers  # (n + 1,)
    of: Numbers

    def __getitem__(self, i: int) -> list[int]:  # type: ignore[override]
        found: list[int] = self.of[self.first[i] : self.first[i + 1]].tolist()
        return found


@dataclass(frozen=True, slots=True)
class Activities:
    """n activities, numbered in the order of the program that they are."""

    seconds: Floats  # (n,) alone on what it holds; of a transfer, before its first byte
    lanes: Lists
    after: Lists  # activities that must have ended
    queued_by: Numbers  # (n,) the activity whose end puts this one into the queues of its lanes
    share: Floats  # (n,) of each of its lanes
    sharer: Numbers  # (n,) who never holds a lane twice at once
    bytes: Floats  # (n,) to move
    links: Lists  # over which they move
    takes: Lists  # stores
    taken: Floats  # of each entry of `takes`
    gives: Lists
    given: Floats
    lane_count: int
    bandwidth: Floats  # (links,) bytes a second
    stock: Floats  # (stores,) what is there at the beginning

    @property
    def count(self) -> int:
        return len(self.seconds)


class Times(NamedTuple):
    """When each activity started and ended, and whose end let it start."""

    starts: Floats
    ends: Floats
    causes: Numbers


class Builder:
    """Activities one by one, in program order."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, int, float, int]] = []  # seconds, queued_by, share, sharer
        self.lanes: list[Sequence[int]] = []
        self.after: list[Sequence[int]] = []
        self.bytes: dict[int, float] = {}
        self.links: dict[int, Sequence[int]] = {}
        self.takes: dict[int, Sequence[tuple[int, float]]] = {}
        self.gives: dict[int, Sequence[tuple[int, float]]] = {}
        self.lane_count = 0
        self.bandwidth: list[float] = []
        self.stock: list[float] = []

    def lane(self) -> int:
        self.lane_count += 1
        return self.lane_count - 1

    def link(self, bytes_per_second: float) -> int:
        self.bandwidth.append(bytes_per_second)
        return len(self.bandwidth) - 1

    def store(self, amount: float) -> int:
        self.stock.append(amount)
        return len(self.stock) - 1

    def add(
        self,
        seconds: float,
        lanes: Sequence[int] = (),
        after: Sequence[int] = (),
        *,
        queued_by: int = NOBODY,
        share: float = 1.0,
        sharer: int = NOBODY,
    ) -> int:
        """The number of one more activity; `after` may name later ones."""
        self.rows.append((seconds, queued_by, share, sharer))
        self.lanes.append(lanes)
        self.after.append(after)
        return len(self.rows) - 1

    def transfer(self, activity: int, size_bytes: float, links: Sequence[int]) -> None:
        """Let an activity move bytes once its seconds are over."""
        self.bytes[activity], self.links[activity] = size_bytes, links

    def hold(
        self, activity: int, takes: Sequence[tuple[int, float]] = (), gives: Sequence[tuple[int, float]] = ()
    ) -> None:
        """Let an activity take from stores as it starts, and give to stores as it ends."""
        self.takes[activity], self.gives[activity] = takes, gives

    def done(self) -> Activities:
        """All of them, as arrays."""
        count = len(self.rows)
        rows = np.array(self.rows, dtype=np.float64).reshape(-1, 4)
        moved = np.zeros(count)
        moved[[*self.bytes]] = [*self.bytes.values()]
        takes, taken = amounts(self.takes, count)
        gives, given = amounts(self.gives, count)
        return Activities(
            seconds=rows[:, 0].copy(),
            lanes=listed(self.lanes),
            after=listed(self.after),
            queued_by=rows[:, 1].astype(np.int64),
            share=rows[:, 2].copy(),
            sharer=rows[:, 3].astype(np.int64),
            bytes=moved,
            links=sparse(self.links, count),
            takes=takes,
            taken=taken,
            gives=gives,
            given=given,
            lane_count=self.lane_count,
            bandwidth=np.array(self.bandwidth, dtype=np.float64),
            stock=np.array(self.stock, dtype=np.float64),
        )


def listed(each: Sequence[Sequence[int]]) -> Lists:
    """A list of lists, flat."""
    first = np.zeros(len(each) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, each), dtype=np.int64, count=len(each)), out=first[1:])
    return Lists(first, np.fromiter(chain.from_iterable(each), dtype=np.int64, count=int(first[-1])))


def sparse(each: Mapping[int, Sequence[int]], count: int) -> Lists:
    """The same of few activities among `count`; the others have nothing."""
    numbers = sorted(each)
    first = np.zeros(count + 1, dtype=np.int64)
    first[[number + 1 for number in numbers]] = [len(each[number]) for number in numbers]
    np.cumsum(first, out=first)
    return Lists(first, np.array([entry for number in numbers for entry in each[number]], dtype=np.int64))


def amounts(moved: Mapping[int, Sequence[tuple[int, float]]], count: int) -> tuple[Lists, Floats]:
    """Of few activities what they move, and how much of it."""
    stores = sparse({number: [store for store, _ in entries] for number, entries in moved.items()}, count)
    return stores, np.array([amount for number in sorted(moved) for _, amount in moved[number]], dtype=np.float64)
