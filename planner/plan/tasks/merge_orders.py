"""Merges ordered lists of tasks into one order that keeps each list's own and respects all dependencies.

One order of all tasks keeps ranks from deadlocking: each rank runs its tasks in this order, so all members of a group
enter the same collectives in the same sequence.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heappop, heappush

from planner.errors import InputError
from planner.plan.mesh.identical_groups import EquivalentRanks
from planner.plan.task import PHASE_STREAMS, Phase, Task
from planner.specs.base import Layers

NO_SYNCHRONISED_PHASES: Mapping[str, Collection[Phase]] = {}


def merge_orders(lists: Sequence[Sequence[Task]]) -> list[Task]:
    """Merge the lists round by round, taking from each what is ready. Raises InputError naming a cyclic wait."""
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
    """Whether all dependencies of a task that are in the lists are done."""
    return all(i in done or i not in known for i in task.after)


def topological_order(
    order: Sequence[Task], synchronised: Mapping[str, Collection[Phase]] = NO_SYNCHRONISED_PHASES
) -> list[Task]:
    """Sort tasks topologically: each after its dependencies, and in the same order as before on every rank and stream.
    `synchronised`: by module, the phases whose passes of one micro-batch and stage stay adjacent, as their groups
    synchronise.

    Raises InputError naming a cyclic wait.
    """
    unit_of, position = first_of_unit(order, synchronised), {task.id: i for i, task in enumerate(order)}
    if is_sorted(order, unit_of, position):
        return [*order]
    alike = EquivalentRanks(task.ranks for task in order)
    members: dict[int, list[int]] = defaultdict(list)
    followers: list[list[int]] = [[] for _ in order]
    blocked = [0] * len(order)
    last_on: dict[str, dict[int, int]] = {stream: {} for stream in PHASE_STREAMS.values()}
    for i, (task, unit) in enumerate(zip(order, unit_of, strict=True)):
        last, ranks = last_on[task.stream], alike.of(task.ranks)
        before = {unit_of[last[rank]] for rank in ranks if rank in last}
        before.update(unit_of[position[a]] for a in task.after if a in position)
        for j in before - {unit}:
            followers[j].append(unit)
            blocked[unit] += 1
        members[unit].append(i)
        last.update(dict.fromkeys(ranks, i))
    ready = [i for i in members if not blocked[i]]  # in rising order, so it is a heap
    settled: list[int] = []
    while ready:
        done = heappop(ready)
        settled += members[done]
        for i in followers[done]:
            blocked[i] -= 1
            if not blocked[i]:
                heappush(ready, i)
    if len(settled) < len(order):
        stuck = [task for task, unit in zip(order, unit_of, strict=True) if blocked[unit]]
        raise wait_cycle(*first_wait(stuck, position))
    return [order[i] for i in settled]


def is_sorted(order: Sequence[Task], unit_of: Sequence[int], position: Mapping[str, int]) -> bool:
    """Whether each task is behind all that it waits for, and the tasks of each unit are adjacent."""
    apart = any(unit_of[i] not in (i, unit_of[i - 1]) for i in range(1, len(order)))
    return not apart and all(position.get(a, -1) < i for i, task in enumerate(order) for a in task.after)


def first_of_unit(order: Sequence[Task], synchronised: Mapping[str, Collection[Phase]]) -> list[int]:
    """Return, for each task, the position of the first task of the unit that it is in, which may be itself."""
    if not synchronised:
        return [*range(len(order))]
    first: dict[tuple[str, str, int, Layers], int] = {}
    return [
        i
        if task.micro_batch is None or task.phase not in synchronised.get(task.module, ())
        else first.setdefault((task.module, task.phase, task.micro_batch, task.layers), i)
        for i, task in enumerate(order)
    ]


def first_wait(stuck: Sequence[Task], position: Mapping[str, int]) -> tuple[Task, str]:
    """Return, of tasks in a cycle, the first that waits for a later one, or else for any, and the id it waits for."""
    ids = {task.id for task in stuck}
    waits = [(task, awaited) for task in stuck for awaited in task.after if awaited in ids]
    later = [wait for wait in waits if position[wait[1]] > position[wait[0].id]]
    return next(iter([*later, *waits]), (stuck[0], stuck[-1].id))


def check_waits(order: Iterable[Task]) -> None:
    """Check that each task comes after those that it waits for, as ranks run tasks in this order. Raises InputError."""
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
    """Return the error of a task that waits for one which cannot start before it."""
    return InputError(
        f"the tasks wait for each other: {task.id} waits for {awaited}, which cannot start before it",
        where="steps",
        fix="change `order` so that each task comes after those that it waits for",
    )
