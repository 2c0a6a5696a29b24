"""Several ordered lists of tasks as one order that keeps each list's own and puts every task after what it waits for.

One order of all tasks is what keeps ranks from deadlocking: each rank runs the tasks that name it in this order, so
every member of a group meets the same collectives in the same sequence.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from planner.errors import InputError
from planner.plan.task import Task


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


def settled(order: Sequence[Task]) -> list[Task]:
    """The same tasks, each behind all that it waits for; on every rank and stream they keep their order.

    Raises InputError naming a task that cannot start before one which waits for it.
    """
    position = {task.id: i for i, task in enumerate(order)}
    followers: list[list[int]] = [[] for _ in order]
    blocked = [0] * len(order)
    last: dict[tuple[int, str], int] = {}
    for i, task in enumerate(order):
        lanes = [(rank, task.stream) for rank in task.ranks]
        before = {last[lane] for lane in lanes if lane in last} | {position[a] for a in task.after if a in position}
        for j in before:
            followers[j].append(i)
        blocked[i] = len(before)
        last.update(dict.fromkeys(lanes, i))
    ready = [i for i, count in enumerate(blocked) if not count]  # rising, so a heap
    settled: list[int] = []
    while ready:
        settled.append(heappop(ready))
        for i in followers[settled[-1]]:
            blocked[i] -= 1
            if not blocked[i]:
                heappush(ready, i)
    if len(settled) < len(order):  # the first of the rest is behind its lanes' tasks, so it waits for a later one
        stuck = order[next(i for i, count in enumerate(blocked) if count)]
        raise wait_cycle(stuck, next(a for a in stuck.after if a in position and blocked[position[a]]))
    return [order[i] for i in settled]


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
