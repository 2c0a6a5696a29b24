"""Simulates the tasks of a plan: each becomes an activity on the streams of its ranks, and the event clock runs them.

A rank has one lane per stream. A lane admits tasks in program order, as many at once as fit into a capacity of 1, but
at most one of each group: tasks that take the whole device run one after the other, groups that share a device run
concurrently as far as their shares allow, whatever their micro-batches; transfers have streams of their own. A task
starts when every lane of its ranks has admitted it and all that it waits for has ended, so a collective begins when
its last rank arrives.
"""

from collections.abc import Callable, Mapping, Sequence

from planner.costs import Cost
from planner.errors import InputError
from planner.plan.mesh.identical_groups import NO_IDENTICAL_GROUPS, IdenticalGroups, representative_ranks
from planner.plan.task import Task
from planner.simulate.activities import NO_ACTIVITY, Activities, ActivityBuilder, ActivityTimes
from planner.simulate.compiled_clock import run_activities
from planner.simulate.timeline import TaskEvent, Timeline
from planner.specs.base import Ranks

HeldStreams = Mapping[str, tuple[str, ...]]
NO_HELD_STREAMS: HeldStreams = {}


def simulate(
    tasks: Sequence[Task],
    price: Callable[[Task], Cost],
    ranks: int | None = None,
    alike: IdenticalGroups = NO_IDENTICAL_GROUPS,
    held_streams: HeldStreams = NO_HELD_STREAMS,
) -> Timeline:
    """Simulate tasks given in program order.

    `price`: the cost of a task; `ranks`: size of the job, when some ranks have no task; `alike`: ranks and groups that
    do the same as the simulated ones; `held_streams`: per phase, streams that its tasks occupy besides their own.

    Raises InputError when tasks wait for each other in a cycle, or two have the same id.
    """
    ids = [task.id for task in tasks]
    costs = [price(task) for task in tasks]
    starts, ends, causes = (each.tolist() for each in task_times(tasks, ids, costs, held_streams))
    by_number = [*ids, ""]  # a cause of NO_ACTIVITY (−1) is the last entry
    events = tuple(
        TaskEvent(id, task.phase, task.module, task.ranks, start, end, c.comm, c.source, c.spread, by_number[cause])
        for task, id, c, start, end, cause in zip(tasks, ids, costs, starts, ends, causes, strict=True)
    )
    named = 1 + max((task.ranks[-1] for task in tasks if task.ranks), default=-1)
    size = max(named, ranks or 0)
    return Timeline(events, max(ends, default=0.0), size, alike.ranks, alike.groups, alike.group_of)


def simulated_end(tasks: Sequence[Task], price: Callable[[Task], Cost]) -> float:
    """Seconds of the step that `simulate` would return alone, for searches that compare many steps."""
    times = task_times(tasks, [task.id for task in tasks], [price(task) for task in tasks], NO_HELD_STREAMS)
    return float(times.ends.max(initial=0.0))


def task_times(
    tasks: Sequence[Task], ids: Sequence[str], costs: Sequence[Cost], held_streams: HeldStreams
) -> ActivityTimes:
    """When each task starts and ends, and why. Raises InputError when they wait for each other, or two have one id."""
    activities = task_activities(tasks, ids, [cost.value for cost in costs], held_streams)
    times, ended = run_activities(activities)
    if not ended.all():
        raise deadlock_error(ids, activities, ended.tolist())
    return times


def task_activities(
    tasks: Sequence[Task], ids: Sequence[str], seconds: Sequence[float], held_streams: HeldStreams = NO_HELD_STREAMS
) -> Activities:
    """Tasks as activities of the clock. Awaited ids that are no task of this step count as done. Raises InputError."""
    number = {task_id: i for i, task_id in enumerate(ids)}
    if len(number) < len(tasks):
        twice = next(task_id for i, task_id in enumerate(ids) if number[task_id] != i)
        raise InputError(
            f"two tasks are called {twice}", where="steps", fix="give each group one entry in a micro-batch"
        )
    builder, lanes = ActivityBuilder(), StreamLanes(tasks, held_streams)
    sharers: dict[tuple[str, str], int] = {}
    for i, task in enumerate(tasks):
        after = [number[awaited] for awaited in task.after if awaited in number]
        share = task.share if task.stream == "compute" else 1.0
        sharer = sharers.setdefault((task.module, task.group), len(sharers)) if share < 1 else NO_ACTIVITY
        builder.add(seconds[i], lanes.lanes_of(builder, task), after, share=share, sharer=sharer)
    return builder.build()


class StreamLanes:
    """Lanes of the streams of ranks; ranks with exactly the same tasks share lanes."""

    def __init__(self, tasks: Sequence[Task], holding: HeldStreams) -> None:
        self.holding = holding
        self.kind = representative_ranks(task.ranks for task in tasks)
        self.found: dict[tuple[int, str], int] = {}
        self.shared: dict[tuple[Ranks, str], list[int]] = {}  # tasks on the same ranks in a phase have the same lanes

    def lanes_of(self, builder: ActivityBuilder, task: Task) -> list[int]:
        """The lanes that a task occupies."""
        key = (task.ranks, task.phase)
        if key not in self.shared:
            kinds = sorted({self.kind[rank] for rank in task.ranks})
            streams = (task.stream, *self.holding.get(task.phase, ()))
            self.shared[key] = [self.lane(builder, rank, stream) for stream in streams for rank in kinds]
        return self.shared[key]

    def lane(self, builder: ActivityBuilder, rank: int, stream: str) -> int:
        """The lane of one stream of a rank."""
        if (rank, stream) not in self.found:
            self.found[rank, stream] = builder.add_lane()
        return self.found[rank, stream]


def deadlock_error(ids: Sequence[str], activities: Activities, ended: Sequence[bool]) -> InputError:
    """An error that names the first task that never ended: all before it did, so it waits for a later one."""
    stuck = next(i for i, done in enumerate(ended) if not done)
    awaited = next(i for i in activities.after[stuck] if not ended[i])
    return InputError(
        f"{ids[stuck]} waits for {ids[awaited]}, which cannot start before it",
        where="steps",
        fix="change `order` so that each task comes after those it waits for",
    )
