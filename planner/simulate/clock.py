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
        self.ending: list[tuple[float, int]] = []  # heap of ends: time, activity
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
            now, i = heappop(self.ending)
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
        heappush(self.ending, (now + self.seconds[i], i))


def run_in_python(activities: Activities) -> tuple[ActivityTimes, NDArray[np.bool_]]:
    """Times of all activities, and which of them ended: activities in a circular wait never do."""
    clock = Clock(activities)
    clock.run()
    times = ActivityTimes(np.array(clock.starts), np.array(clock.ends), np.array(clock.causes, dtype=np.int64))
    return times, np.array(clock.ended, dtype=np.bool_)
