"""The event clock in Python: when every activity starts and ends (simulate/activities.py defines the model).

The simulation is deterministic: simultaneous events are processed by activity number. The activity whose end let
another one start is recorded as its cause, so the chain of causes from the last end is the critical path, without gaps.
This is the reference; clock.c performs the same operations in the same order, and a test compares the two bit by bit.
"""

from collections import deque
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from planner.simulate.activities import NO_ACTIVITY, Activities, ActivityTimes

ROUNDING = 1e-9  # tolerance when shares add up to 1
LATENT, MOVING = 0, 1  # a transfer before its first byte, and while bytes move


class Clock:
    """The state of one simulation."""

    def __init__(self, activities: Activities) -> None:
        n = activities.count
        self.activities = activities
        self.seconds = activities.seconds.tolist()
        self.share = activities.share.tolist()
        self.sharer = activities.sharer.tolist()
        self.lanes = [activities.lanes[i] for i in range(n)]
        self.starts, self.ends, self.causes = [0.0] * n, [0.0] * n, [NO_ACTIVITY] * n
        self.ended = [False] * n
        # Number of lanes and activities that each still waits for
        self.blocked = [len(self.lanes[i]) for i in range(n)]
        self.followers: list[list[int]] = [[] for _ in range(n)]
        self.queues: list[deque[int]] = [deque() for _ in range(activities.lane_count)]
        self.queued: list[list[int]] = [[] for _ in range(n)]  # activities that the end of each one queues
        self.free = [1.0] * activities.lane_count
        self.sharers: list[set[int]] = [set() for _ in range(activities.lane_count)]
        self.ending: list[tuple[float, int, int]] = []  # heap of expected ends: time, activity, version of the estimate
        self.transfers = Transfers(activities)
        self.index_waiters()

    def index_waiters(self) -> None:
        for i in range(self.activities.count):
            for awaited in self.activities.after[i]:
                self.followers[awaited].append(i)
                self.blocked[i] += 1
            queued_by = int(self.activities.queued_by[i])
            if queued_by != NO_ACTIVITY:
                self.queued[queued_by].append(i)
                self.blocked[i] += not self.lanes[i]  # without a lane it waits directly for that activity
            else:
                for lane in self.lanes[i]:
                    self.queues[lane].append(i)

    def run(self) -> None:
        """Process all events."""
        for i in range(self.activities.count):
            if not self.blocked[i]:
                self.start(i, 0.0, NO_ACTIVITY)
        for lane in range(self.activities.lane_count):
            self.admit(lane, 0.0, NO_ACTIVITY)
        while self.ending:
            now, i, guess = heappop(self.ending)
            if self.transfers.stale(i, guess):
                continue
            if self.transfers.is_about_to_move(i):
                self.push_ends(self.transfers.begin(i, now))
                continue
            self.push_ends(self.transfers.finish(i, now))
            self.end(i, now)

    def end(self, i: int, now: float) -> None:
        """End an activity: release its followers, queue the activities it queues, free its lanes."""
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

    def admit(self, lane: int, now: float, cause: int) -> None:
        """Admit activities from the head of a lane's queue as long as they fit."""
        queue = self.queues[lane]
        while queue:
            i = queue[0]
            if self.share[i] > self.free[lane] + ROUNDING or self.sharer[i] in self.sharers[lane]:
                return
            queue.popleft()
            self.free[lane] -= self.share[i]
            if self.sharer[i] != NO_ACTIVITY:
                self.sharers[lane].add(self.sharer[i])
            self.unblock(i, now, cause)

    def unblock(self, i: int, now: float, cause: int) -> None:
        self.blocked[i] -= 1
        if not self.blocked[i]:
            self.start(i, now, cause)

    def start(self, i: int, now: float, cause: int) -> None:
        """Start an activity that holds its lanes and waits for no other."""
        self.starts[i], self.causes[i] = now, cause
        heappush(self.ending, (now + self.seconds[i], i, 0))

    def push_ends(self, guesses: list[tuple[float, int, int]]) -> None:
        for guess in guesses:
            heappush(self.ending, guess)


class Transfers:
    """Transfers in flight. When one begins or ends, the rates and expected ends of those on its links are updated."""

    def __init__(self, activities: Activities) -> None:
        self.size, self.links = activities.bytes.tolist(), [activities.links[i] for i in range(activities.count)]
        self.bandwidth = activities.bandwidth.tolist()
        self.on: list[list[int]] = [[] for _ in self.bandwidth]  # transfers on each link, in order of arrival
        self.left = dict[int, float]()  # bytes that each transfer in flight still has to move
        self.rate = dict[int, float]()  # bytes per second
        self.since = dict[int, float]()  # time at which `left` was computed
        self.guess = dict[int, int]()  # version of the current estimate of the end

    def stale(self, i: int, guess: int) -> bool:
        return guess != self.guess.get(i, 0)

    def is_about_to_move(self, i: int) -> bool:
        """Whether the latency of an activity has passed and its bytes have yet to move."""
        return self.size[i] > 0 and i not in self.guess

    def begin(self, i: int, now: float) -> list[tuple[float, int, int]]:
        self.left[i], self.rate[i], self.since[i], self.guess[i] = self.size[i], 0.0, now, 0
        for link in self.links[i]:
            self.on[link].append(i)
        return self.update_rates(i, now)

    def finish(self, i: int, now: float) -> list[tuple[float, int, int]]:
        if i not in self.left:
            return []
        for link in self.links[i]:
            self.on[link].remove(i)
        del self.left[i], self.rate[i], self.since[i]
        return self.update_rates(i, now)

    def update_rates(self, changed: int, now: float) -> list[tuple[float, int, int]]:
        """New expected ends of transfers on the links of `changed`; where the rate stays the same, so does the end."""
        guesses = []
        for j in dict.fromkeys(j for link in self.links[changed] for j in self.on[link]):
            rate = min(self.bandwidth[link] / len(self.on[link]) for link in self.links[j])
            if rate != self.rate[j]:
                self.left[j] = max(0.0, self.left[j] - self.rate[j] * (now - self.since[j]))
                self.since[j], self.rate[j] = now, rate
                self.guess[j] += 1
                guesses.append((now + self.left[j] / rate, j, self.guess[j]))
        return guesses


def run_in_python(activities: Activities) -> tuple[ActivityTimes, NDArray[np.bool_]]:
    """Times of all activities, and which of them ended: activities in a circular wait never do."""
    clock = Clock(activities)
    clock.run()
    times = ActivityTimes(np.array(clock.starts), np.array(clock.ends), np.array(clock.causes, dtype=np.int64))
    return times, np.array(clock.ended, dtype=np.bool_)
