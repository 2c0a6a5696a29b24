"""Several ordered lists of tasks as one order that keeps each list's own and puts every task after what it waits for.

One order of all tasks is what keeps ranks from deadlocking: each rank runs the tasks that name it in this order, so
every member of a group meets the same collectives in the same sequence.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heappop, heappush

from planner.errors import InputError
from planner.plan.task import Phase, Task
from planner.specs.base import Layers

ALONE: Mapping[str, Collection[Phase]] = {}


def merge(lists: Sequence[Sequence[Task]]) -> list[Task]:
    """Round by round, from every list what is ready. Raises InputError naming a task that waits for itself."""
    known = {task.id for tasks in lists for task in tasks}
    position = [0] * len(lists)
    done: set[str] = set()
    order: list[Task] = []
    while len(order) < sum(map(len, lists)):
        before = len(order)
        for number, tasks in enumerate(lists):
            while position[number] < len(tasks) and ready(tasks[position[number]], done, known):
                task = tasks[position[number]]
                order.append(task)
                done.add(task.id)
                position[number] += 1
        if len(order) == before:
            stuck = next(tasks[at] for at, tasks in zip(position, lists, strict=True) if at < len(tasks))
            raise wait_cycle(stuck, next(i for i in stuck.after if i in known and i not in done))
    return order


def ready(task: Task, done: set[str], known: set[str]) -> bool:
    return all(i in done or i not in known for i in task.after)


def settled(order: Sequence[Task], meeting: Mapping[str, Collection[Phase]] = ALONE) -> list[Task]:
    """The same tasks, each behind all that it waits for; on every rank and stream they keep their order. `meeting`: by
    module, the passes of a micro-batch that ranks go through together, whatever their group: they stay together.

    Raises InputError naming a task that cannot start before one which waits for it.
    """
    with_first = together(order, meeting)
    position = {task.id: i for i, task in enumerate(order)}
    members: dict[int, list[int]] = defaultdict(list)
    followers: list[list[int]] = [[] for _ in order]
    blocked = [0] * len(order)
    last: dict[tuple[int, str], int] = {}
    for i, (task, first) in enumerate(zip(order, with_first, strict=True)):
        lanes = [(rank, task.stream) for rank in task.ranks]
        before = {last[lane] for lane in lanes if lane in last} | {position[a] for a in task.after if a in position}
        for j in {with_first[j] for j in before} - {first}:
            followers[j].append(first)
            blocked[first] += 1
        members[first].append(i)
        last.update(dict.fromkeys(lanes, i))
    ready = [i for i in members if not blocked[i]]  # rising, so a heap
    settled: list[int] = []
    while ready:
        done = heappop(ready)
        settled += members[done]
        for i in followers[done]:
            blocked[i] -= 1
            if not blocked[i]:
                heappush(ready, i)
    if len(settled) < len(order):
        stuck = [task for task, first in zip(order, with_first, strict=True) if blocked[first]]
        raise wait_cycle(*first_wait(stuck, position))
    return [order[i] for i in settled]


def together(order: Sequence[Task], meeting: Mapping[str, Collection[Phase]]) -> list[int]:
    """Of each task the place of the first of those that go along with it, which may be itself."""
    found: dict[tuple[str, str, int, Layers], int] = {}
    return [
        i
        if task.micro_batch is None or task.phase not in meeting.get(task.module, ())
        else found.setdefault((task.module, task.phase, task.micro_batch, task.layers), i)
        for i, task in enumerate(order)
    ]


def first_wait(stuck: Sequence[Task], position: Mapping[str, int]) -> tuple[Task, str]:
    """Of tasks that wait in a circle, the first that waits for a later one; or for one that has to meet others."""
    ids = {task.id for task in stuck}
    waits = [(task, awaited) for task in stuck for awaited in task.after if awaited in ids]
    later = [wait for wait in waits if position[wait[1]] > position[wait[0].id]]
    return next(iter([*later, *waits]), (stuck[0], stuck[-1].id))


def check_waits(order: Iterable[Task]) -> None:
    """Raises InputError when a task comes before one that it waits for: ranks run their tasks in this order."""
    tasks = list(order)
    position = {task.id: i for i, task in enumerate(tasks)}
    for i, task in enumerate(tasks):
        if position[task.id] != i:
            raise InputError(f"two tasks are called {task.id}", where="steps", fix="rename the group")
    for i, task in enumerate(tasks):
        for awaited in task.after:
            if position.get(awaited, -1) >= i:
                raise wait_cycle(task, awaited)


def wait_cycle(task: Task, awaited: str) -> InputError:
    return InputError(
        f"the tasks wait for each other: {task.id} waits for {awaited}, which cannot start before it",
        where="steps",
        fix="change `order` so that what is needed comes first",
    )
