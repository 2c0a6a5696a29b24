"""Several ordered lists of tasks as one order that keeps each list's own and puts every task after what it waits for.

One order of all tasks is what keeps ranks from deadlocking: each rank runs the tasks that name it in this order, so
every member of a group meets the same collectives in the same sequence.
"""

from collections.abc import Iterable, Sequence

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
            raise wait_cycle([tasks[at] for at, tasks in zip(position, lists, strict=True) if at < len(tasks)], done)
    return order


def ready(task: Task, done: set[str], known: set[str]) -> bool:
    return all(i in done or i not in known for i in task.after)


def wait_cycle(stuck: Sequence[Task], done: set[str]) -> InputError:
    first = stuck[0]
    awaited = next((i for i in first.after if i not in done), "a task behind it")
    return InputError(
        f"the tasks wait for each other: {first.id} waits for {awaited}, which cannot start before it",
        where="steps",
        fix="change `order` so that what is needed comes first",
    )


def check_waits(order: Iterable[Task]) -> None:
    """Tasks in their given order, each rank's streams in turn: raises InputError when some wait for each other."""
    queues: dict[tuple[int, str], list[Task]] = {}
    tasks = list(order)
    for task in tasks:
        for rank in task.ranks:
            queues.setdefault((rank, task.stream), []).append(task)
    known = {task.id for task in tasks}
    done: set[str] = set()
    heads = dict.fromkeys(queues, 0)
    waiting = tasks
    while waiting:
        started = []
        for task in waiting:
            keys = [(rank, task.stream) for rank in task.ranks]
            if ready(task, done, known) and all(queues[key][heads[key]] is task for key in keys):
                started.append(task.id)
                done.add(task.id)
                for key in keys:
                    heads[key] += 1
        if not started:
            raise wait_cycle(waiting, done)
        waiting = [task for task in waiting if task.id not in done]
