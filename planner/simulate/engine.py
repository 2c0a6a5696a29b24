"""The timeline of a plan's tasks: each becomes an activity on the streams of its ranks, and the clock runs them.

A rank has one lane per stream, which lets tasks in in program order, as many at once as fit into a capacity of 1, but
one of each group: tasks that take the whole device follow each other, groups that share it run beside each other as far
as their shares go. A task starts once every lane of its ranks has let it in and all that it waits for has ended, so a
collective begins when its last rank arrives (rendezvous).
"""

from collections.abc import Callable, Sequence

from planner.costs.cost import Cost
from planner.errors import InputError
from planner.plan.task import Task
from planner.simulate.activities import NOBODY, Activities, Builder
from planner.simulate.alike import alike
from planner.simulate.clock import run
from planner.simulate.timeline import Event, Timeline
from planner.specs.base import Ranks


def simulate(tasks: Sequence[Task], price: Callable[[Task], Cost], ranks: int | None = None) -> Timeline:
    """The timeline of tasks in program order; `ranks`: of the whole job, when some have no task.

    Raises InputError when tasks wait for each other in a circle.
    """
    ids = [task.id for task in tasks]
    costs = [price(task) for task in tasks]
    activities = wired(tasks, ids, [cost.value for cost in costs])
    times, ended = run(activities)
    if not ended.all():
        raise deadlock(ids, activities, ended.tolist())
    starts, ends, causes = (each.tolist() for each in times)
    events = tuple(
        Event(
            id=ids[i],
            phase=task.phase,
            module=task.module,
            ranks=task.ranks,
            start=starts[i],
            end=ends[i],
            comm=costs[i].comm,
            source=costs[i].source,
            spread=costs[i].spread,
            cause=ids[causes[i]] if causes[i] != NOBODY else "",
        )
        for i, task in enumerate(tasks)
    )
    named = 1 + max((task.ranks[-1] for task in tasks if task.ranks), default=-1)
    return Timeline(events, max(ends, default=0.0), max(named, ranks or 0))


def wired(tasks: Sequence[Task], ids: Sequence[str], seconds: Sequence[float]) -> Activities:
    """Tasks as activities. Ids that are no task of this step have happened already."""
    number = {task_id: i for i, task_id in enumerate(ids)}
    if len(number) < len(tasks):
        twice = next(task_id for i, task_id in enumerate(ids) if number[task_id] != i)
        raise InputError(f"two tasks are called {twice}", where="steps", fix="give each group one entry in a row")
    built, lanes = Builder(), Lanes(tasks)
    sharers: dict[tuple[str, str], int] = {}
    for i, task in enumerate(tasks):
        after = [number[awaited] for awaited in task.after if awaited in number]
        sharer = sharers.setdefault((task.module, task.group), len(sharers)) if task.share < 1 else NOBODY
        built.add(seconds[i], lanes.of(built, task), after, share=task.share, sharer=sharer)
    return built.done()


class Lanes:
    """The streams of ranks. Those that do all alike have one for all of them."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.kind = alike(task.ranks for task in tasks)
        self.found: dict[tuple[int, str], int] = {}
        self.shared: dict[tuple[Ranks, str], list[int]] = {}  # tasks on the same ranks and stream have the same lanes

    def of(self, built: Builder, task: Task) -> list[int]:
        key = (task.ranks, task.stream)
        if key not in self.shared:
            kinds = sorted({self.kind[rank] for rank in task.ranks})
            self.shared[key] = [self.lane(built, rank, task.stream) for rank in kinds]
        return self.shared[key]

    def lane(self, built: Builder, rank: int, stream: str) -> int:
        if (rank, stream) not in self.found:
            self.found[rank, stream] = built.lane()
        return self.found[rank, stream]


def deadlock(ids: Sequence[str], activities: Activities, ended: Sequence[bool]) -> InputError:
    """Of the tasks that never ended, the first: everything before it has, so it waits for a later one."""
    stuck = next(i for i, done in enumerate(ended) if not done)
    awaited = next(i for i in activities.after[stuck] if not ended[i])
    return InputError(
        f"{ids[stuck]} waits for {ids[awaited]}, which cannot start before it",
        where="steps",
        fix="change `order` so that what is needed comes first",
    )
