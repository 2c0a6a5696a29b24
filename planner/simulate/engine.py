"""The clock: when every task starts and ends, by discrete events.

A rank has one lane per stream. A lane admits tasks in program order, as many at once as fit into a capacity of 1, but
one of each group: tasks that take the whole device follow each other, groups that share it run beside each other as far
as their shares go. A task starts once every lane of its ranks has admitted it and all that it waits for has ended, so
a collective begins when its last rank arrives (rendezvous). What let a task start is kept as its cause: the chain of
causes that ends last is the critical path, and it has no gaps.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from planner.costs.cost import Cost
from planner.errors import InputError
from planner.plan.task import Task
from planner.simulate.alike import alike
from planner.simulate.timeline import Event, Timeline
from planner.specs.base import Ranks

ROUNDING = 1e-9  # shares that add up to 1 but for rounding fit


def simulate(tasks: Sequence[Task], price: Callable[[Task], Cost], ranks: int | None = None) -> Timeline:
    """The timeline of tasks in program order; `ranks`: of the whole job, when some have no task.

    Raises InputError when tasks wait for each other in a circle.
    """
    ids = [task.id for task in tasks]
    costs = [price(task) for task in tasks]
    clock = Clock(tasks, ids, [cost.value for cost in costs])
    clock.run()
    events = tuple(
        Event(
            id=ids[i],
            phase=task.phase,
            module=task.module,
            ranks=task.ranks,
            start=clock.starts[i],
            end=clock.starts[i] + costs[i].value,
            comm=costs[i].comm,
            source=costs[i].source,
            spread=costs[i].spread,
            cause=ids[clock.causes[i]] if clock.causes[i] >= 0 else "",
        )
        for i, task in enumerate(tasks)
    )
    named = 1 + max((task.ranks[-1] for task in tasks if task.ranks), default=-1)
    return Timeline(events, max((event.end for event in events), default=0.0), max(named, ranks or 0))


class Lane:
    """One stream of one rank: its tasks in program order, how many it has admitted, who shares it, what is left."""

    __slots__ = ("admitted", "free", "sharers", "tasks")

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.admitted = 0
        self.free = 1.0
        self.sharers: set[tuple[str, str]] = set()


class Clock:
    """The state of one simulation. Tasks are numbered in program order."""

    def __init__(self, tasks: Sequence[Task], ids: Sequence[str], seconds: Sequence[float]) -> None:
        self.ids, self.seconds = ids, seconds
        self.shares = [task.share for task in tasks]
        self.sharers = [(task.module, task.group) if task.share < 1 else None for task in tasks]
        self.starts = [0.0] * len(tasks)
        self.causes = [-1] * len(tasks)  # whose end let the task start; -1: nobody's
        self.ending: list[tuple[float, int]] = []  # heap of what runs
        self.wire_lanes(tasks)
        self.wire_waits(tasks)

    def wire_lanes(self, tasks: Sequence[Task]) -> None:
        """Queue every task in the lanes of its ranks."""
        kind = alike(task.ranks for task in tasks)
        found: dict[tuple[int, str], Lane] = {}
        shared: dict[tuple[Ranks, str], list[Lane]] = {}  # tasks on the same ranks and stream have the same lanes
        self.lanes: list[list[Lane]] = []  # of each task
        for number, task in enumerate(tasks):
            key = (task.ranks, task.stream)
            if key not in shared:
                kinds = sorted({kind[rank] for rank in task.ranks})
                shared[key] = [found.setdefault((rank, task.stream), Lane()) for rank in kinds]
            own = shared[key]
            for lane in own:
                lane.tasks.append(number)
            self.lanes.append(own)
        self.all_lanes = [*found.values()]

    def wire_waits(self, tasks: Sequence[Task]) -> None:
        """Count what each task waits for; ids that are no task of this step have happened already."""
        number = {task_id: i for i, task_id in enumerate(self.ids)}
        if len(number) < len(tasks):
            twice = next(task_id for i, task_id in enumerate(self.ids) if number[task_id] != i)
            raise InputError(f"two tasks are called {twice}", where="steps", fix="give each group one entry in a row")
        self.followers: list[list[int]] = [[] for _ in tasks]
        self.blocked = [len(own) for own in self.lanes]  # lanes and tasks that a task still waits for
        for i, task in enumerate(tasks):
            for task_id in task.after:
                awaited = number.get(task_id)
                if awaited is not None:
                    self.followers[awaited].append(i)
                    self.blocked[i] += 1

    def run(self) -> None:
        """From the first start to the last end."""
        ended = 0
        for i, blocked in enumerate(self.blocked):
            if not blocked:
                self.start(i, 0.0, -1)
        for lane in self.all_lanes:
            self.admit(lane, 0.0, -1)
        while self.ending:
            now, i = heappop(self.ending)
            ended += 1
            for follower in self.followers[i]:
                self.blocked[follower] -= 1
                if not self.blocked[follower]:
                    self.start(follower, now, i)
            share, sharer = self.shares[i], self.sharers[i]
            for lane in self.lanes[i]:
                lane.free += share
                if sharer:
                    lane.sharers.remove(sharer)
                self.admit(lane, now, i)
        if ended < len(self.ids):
            raise self.deadlock()

    def admit(self, lane: Lane, now: float, cause: int) -> None:
        """Admit what fits, in program order."""
        while lane.admitted < len(lane.tasks):
            i = lane.tasks[lane.admitted]
            share, sharer = self.shares[i], self.sharers[i]
            if share > lane.free + ROUNDING or sharer in lane.sharers:
                break
            lane.admitted += 1
            lane.free -= share
            if sharer:
                lane.sharers.add(sharer)
            self.blocked[i] -= 1
            if not self.blocked[i]:
                self.start(i, now, cause)

    def start(self, i: int, now: float, cause: int) -> None:
        self.starts[i] = now
        self.causes[i] = cause
        heappush(self.ending, (now + self.seconds[i], i))

    def deadlock(self) -> InputError:
        """Of the tasks that never started, the first: everything before it has ended, so it waits for a later one."""
        stuck = [i for i, blocked in enumerate(self.blocked) if blocked]
        awaited = next(i for i in stuck if stuck[0] in self.followers[i])
        return InputError(
            f"{self.ids[stuck[0]]} waits for {self.ids[awaited]}, which cannot start before it",
            where="steps",
            fix="change `order` so that what is needed comes first",
        )
