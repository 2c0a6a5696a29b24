"""The clock: when every activity starts and ends, by discrete events (simulate/activities.py says what they may do).

Deterministic: what happens at the same time happens by number. What let an activity start is kept as its cause, so the
chain of causes that ends last is the critical path, and it has no gaps. This is the reference; clock.c does the same,
operation by operation, and a test holds them equal to the bit.
"""

from collections import deque
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from planner.simulate.activities import NOBODY, Activities, Floats, Numbers, Times

ROUNDING = 1e-9  # shares that add up to 1 but for rounding fit; so do amounts, relative to what a store had at first
LATENT, MOVING = 0, 1  # a transfer before its first byte, and while bytes move


class Clock:
    """The state of one run."""

    def __init__(self, of: Activities) -> None:
        n = of.count
        self.of = of
        self.seconds, self.share, self.sharer = of.seconds.tolist(), of.share.tolist(), of.sharer.tolist()
        self.lanes = [of.lanes[i] for i in range(n)]
        self.starts, self.ends, self.causes = [0.0] * n, [0.0] * n, [NOBODY] * n
        self.ended = [False] * n
        self.blocked = [len(self.lanes[i]) for i in range(n)]  # lanes and activities that each still waits for
        self.followers: list[list[int]] = [[] for _ in range(n)]
        self.queues: list[deque[int]] = [deque() for _ in range(of.lane_count)]
        self.queued: list[list[int]] = [[] for _ in range(n)]  # by the end of each
        self.free = [1.0] * of.lane_count
        self.sharers: list[set[int]] = [set() for _ in range(of.lane_count)]
        self.ending: list[tuple[float, int, int]] = []  # heap: when, which, and of which guess of its end
        self.moving = Moving(of)
        self.stores = Stores(of)
        self.wire()

    def wire(self) -> None:
        for i in range(self.of.count):
            for awaited in self.of.after[i]:
                self.followers[awaited].append(i)
                self.blocked[i] += 1
            queued_by = int(self.of.queued_by[i])
            if queued_by != NOBODY:
                self.queued[queued_by].append(i)
                self.blocked[i] += not self.lanes[i]  # without a lane it waits for that end itself
            else:
                for lane in self.lanes[i]:
                    self.queues[lane].append(i)

    def run(self) -> None:
        """From the first start to the last end."""
        for i in range(self.of.count):
            if not self.blocked[i]:
                self.ready(i, 0.0, NOBODY)
        for lane in range(self.of.lane_count):
            self.admit(lane, 0.0, NOBODY)
        while self.ending:
            now, i, guess = heappop(self.ending)
            if self.moving.stale(i, guess):
                continue
            if self.moving.begins(i):
                self.follow(self.moving.begin(i, now))
                continue
            self.follow(self.moving.finish(i, now))
            self.end(i, now)

    def end(self, i: int, now: float) -> None:
        """Let go of everything, and let others go on: first who waited for it, then who it queues, then its lanes."""
        self.ends[i], self.ended[i] = now, True
        for follower in self.followers[i]:
            self.unblock(follower, now, i)
        for j in self.queued[i]:
            if not self.lanes[j]:
                self.unblock(j, now, i)
            for lane in self.lanes[j]:
                self.queues[lane].append(j)
                self.admit(lane, now, i)
        for lane in self.lanes[i]:
            self.free[lane] += self.share[i]
            self.sharers[lane].discard(self.sharer[i])
            self.admit(lane, now, i)
        for j in self.stores.give(i):
            self.start(j, now, i)

    def admit(self, lane: int, now: float, cause: int) -> None:
        """Let in what fits, in the order of the queue."""
        queue = self.queues[lane]
        while queue:
            i = queue[0]
            if self.share[i] > self.free[lane] + ROUNDING or self.sharer[i] in self.sharers[lane]:
                return
            queue.popleft()
            self.free[lane] -= self.share[i]
            if self.sharer[i] != NOBODY:
                self.sharers[lane].add(self.sharer[i])
            self.unblock(i, now, cause)

    def unblock(self, i: int, now: float, cause: int) -> None:
        self.blocked[i] -= 1
        if not self.blocked[i]:
            self.ready(i, now, cause)

    def ready(self, i: int, now: float, cause: int) -> None:
        """It holds its lanes and waits for no other: it starts, as soon as stores have what it takes."""
        if self.stores.take(i):
            self.start(i, now, cause)

    def start(self, i: int, now: float, cause: int) -> None:
        self.starts[i], self.causes[i] = now, cause
        heappush(self.ending, (now + self.seconds[i], i, 0))

    def follow(self, guesses: list[tuple[float, int, int]]) -> None:
        for guess in guesses:
            heappush(self.ending, guess)


class Moving:
    """The transfers under way. Whenever one comes or goes, those on its links get another rate and another end."""

    def __init__(self, of: Activities) -> None:
        self.size, self.links = of.bytes.tolist(), [of.links[i] for i in range(of.count)]
        self.bandwidth = of.bandwidth.tolist()
        self.on: list[list[int]] = [[] for _ in self.bandwidth]  # transfers on each link, in the order they came
        self.left = dict[int, float]()  # bytes of each transfer that moves
        self.rate = dict[int, float]()
        self.since = dict[int, float]()  # when `left` was true
        self.guess = dict[int, int]()

    def stale(self, i: int, guess: int) -> bool:
        return guess != self.guess.get(i, 0)

    def begins(self, i: int) -> bool:
        """Its seconds are over and its bytes are still to move."""
        return self.size[i] > 0 and i not in self.guess

    def begin(self, i: int, now: float) -> list[tuple[float, int, int]]:
        self.left[i], self.rate[i], self.since[i], self.guess[i] = self.size[i], 0.0, now, 0
        for link in self.links[i]:
            self.on[link].append(i)
        return self.again(i, now)

    def finish(self, i: int, now: float) -> list[tuple[float, int, int]]:
        if i not in self.left:
            return []
        for link in self.links[i]:
            self.on[link].remove(i)
        del self.left[i], self.rate[i], self.since[i]
        return self.again(i, now)

    def again(self, changed: int, now: float) -> list[tuple[float, int, int]]:
        """When those on the links of what has come or gone will end now; one whose rate is the same ends as before."""
        guesses = []
        for j in dict.fromkeys(j for link in self.links[changed] for j in self.on[link]):
            rate = min(self.bandwidth[link] / len(self.on[link]) for link in self.links[j])
            if rate != self.rate[j]:
                self.left[j] = max(0.0, self.left[j] - self.rate[j] * (now - self.since[j]))
                self.since[j], self.rate[j] = now, rate
                self.guess[j] += 1
                guesses.append((now + self.left[j] / rate, j, self.guess[j]))
        return guesses


class Stores:
    """What stores have, and who waits for them, first come first served."""

    def __init__(self, of: Activities) -> None:
        self.takes = [[*zip(of.takes[i], slice_of(of.takes.first, of.taken, i), strict=True)] for i in range(of.count)]
        self.gives = [[*zip(of.gives[i], slice_of(of.gives.first, of.given, i), strict=True)] for i in range(of.count)]
        self.stock = of.stock.tolist()
        self.slack = (of.stock * ROUNDING).tolist()
        self.waiting: list[deque[int]] = [deque() for _ in self.stock]

    def take(self, i: int) -> bool:
        """Take what it needs of all its stores at once, or wait in turn at each of them."""
        if not self.takes[i]:
            return True
        for store, _ in self.takes[i]:
            self.waiting[store].append(i)
        return self.served(i)

    def served(self, i: int) -> bool:
        """It is first in every queue and there is enough."""
        for store, amount in self.takes[i]:
            if self.waiting[store][0] != i or amount > self.stock[store] + self.slack[store]:
                return False
        for store, amount in self.takes[i]:
            self.waiting[store].popleft()
            self.stock[store] -= amount
        return True

    def give(self, i: int) -> list[int]:
        """Who can start because `i` gave back what it had, in turn."""
        for store, amount in self.gives[i]:
            self.stock[store] += amount
        begun: list[int] = []
        looking = deque(store for store, _ in self.gives[i])
        while looking:
            queue = self.waiting[looking.popleft()]
            if queue and self.served(first := queue[0]):
                begun.append(first)
                looking.extend(store for store, _ in self.takes[first])
        return begun


def slice_of(first: Numbers, values: Floats, i: int) -> list[float]:
    return values[first[i] : first[i + 1]].tolist()  # type: ignore[no-any-return]


def run(activities: Activities) -> tuple[Times, NDArray[np.bool_]]:
    """When everything happens; and what of it happened at all: activities that wait in a circle never end."""
    clock = Clock(activities)
    clock.run()
    times = Times(np.array(clock.starts), np.array(clock.ends), np.array(clock.causes, dtype=np.int64))
    return times, np.array(clock.ended, dtype=np.bool_)
