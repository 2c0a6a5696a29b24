"""Merges ordered lists of tasks into one order that keeps each list's own and respects all dependencies.

One order of all tasks keeps ranks from deadlocking: each rank runs its tasks in this order, so all members of a group
enter the same collectives in the same sequence.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate

import numpy as np

from planner.errors import InputError
from planner.plan.mesh.identical_groups import EquivalentRanks
from planner.plan.task import PHASE_STREAMS, Phase, Task
from planner.plan.tasks.ragged_array import IntArray
from planner.plan.tasks.task_table import TaskTable, numbered

NO_SYNCHRONISED_PHASES: Mapping[str, Collection[Phase]] = {}


def merge_orders(tasks: TaskTable, lengths: Sequence[int]) -> IntArray:
    """Merge lists of so many tasks, one behind the other, round by round, taking from each what is ready. Raises
    InputError naming a cyclic wait.
    """
    after, done, order = tasks.after.lists(), bytearray(len(tasks)), list[int]()
    ends = [*accumulate(lengths)]
    position = [end - length for end, length in zip(ends, lengths, strict=True)]
    while len(order) < len(tasks):
        before = len(order)
        for number, end in enumerate(ends):
            at = position[number]
            while at < end and all(map(done.__getitem__, after[at])):
                order.append(at)
                done[at] = True
                at += 1
            position[number] = at
        if len(order) == before:
            stuck = next(at for at, end in zip(position, ends, strict=True) if at < end)
            raise wait_cycle(tasks.ids[stuck], next(tasks.ids[a] for a in after[stuck] if not done[a]))
    return np.array(order, dtype=np.int64)


def topological_order(
    tasks: TaskTable, synchronised: Mapping[str, Collection[Phase]] = NO_SYNCHRONISED_PHASES
) -> IntArray:
    """Sort tasks topologically: each after its dependencies, and in the same order as before on every rank and stream.
    `synchronised`: by module, the phases whose passes of one micro-batch and stage stay adjacent, as their groups
    synchronise.

    Raises InputError naming a cyclic wait.
    """
    units = first_of_unit(tasks, synchronised)
    if is_sorted(tasks, units):
        return np.arange(len(tasks))
    unit_of, after = units.tolist(), tasks.after.lists()
    alike = EquivalentRanks(kind.ranks for kind in tasks.kinds)
    on_lanes = [(kind.stream, alike.among(kind.ranks)) for kind in tasks.kinds]
    members: dict[int, list[int]] = defaultdict(list)
    followers: list[list[int]] = [[] for _ in unit_of]
    blocked = [0] * len(unit_of)
    last_on: dict[str, dict[int, int]] = {stream: {} for stream in PHASE_STREAMS.values()}
    for i, (kind, unit) in enumerate(zip(tasks.kind.tolist(), unit_of, strict=True)):
        stream, ranks = on_lanes[kind]
        last = last_on[stream]
        before = {unit_of[last[rank]] for rank in ranks if rank in last}
        before.update(unit_of[a] for a in after[i])
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
    if len(settled) < len(unit_of):
        stuck = [i for i, unit in enumerate(unit_of) if blocked[unit]]
        raise wait_cycle(*(tasks.ids[i] for i in first_wait(stuck, after)))
    return np.array(settled, dtype=np.int64)


def is_sorted(tasks: TaskTable, unit_of: IntArray) -> bool:
    """Whether each task is behind all that it waits for, and the tasks of each unit are adjacent."""
    apart = (unit_of[1:] != np.arange(1, len(unit_of))) & (unit_of[1:] != unit_of[:-1])
    return not apart.any() and bool((tasks.after.values < tasks.after.owners()).all())


def first_of_unit(tasks: TaskTable, synchronised: Mapping[str, Collection[Phase]]) -> IntArray:
    """Return, for each task, the place of the first task of the unit that it is in, which may be itself."""
    found = np.arange(len(tasks))
    together = tasks.column(lambda kind: kind.phase in synchronised.get(kind.module, ()), np.bool_)
    places = np.flatnonzero(together & (tasks.micro_batch >= 0)) if synchronised else found[:0]
    if len(places):
        of_kind = numbered([(kind.module, kind.phase, kind.layers) for kind in tasks.kinds])[tasks.kind[places]]
        _, first, unit = np.unique(
            of_kind * (1 + tasks.micro_batch.max()) + tasks.micro_batch[places], return_index=True, return_inverse=True
        )
        found[places] = places[first][unit]
    return found


def first_wait(stuck: Sequence[int], after: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return, of tasks in a cycle, the first that waits for a later one, or else for any, and the one it waits for."""
    among = {*stuck}
    waits = [(place, awaited) for place in stuck for awaited in after[place] if awaited in among]
    return next(iter([*[wait for wait in waits if wait[1] > wait[0]], *waits]), (stuck[0], stuck[-1]))


def check_waits(order: Sequence[Task]) -> None:
    """Check that each task comes after those that it waits for, as ranks run tasks in this order. Raises InputError."""
    tasks = TaskTable.of(order)
    check_ids(tasks)
    waiting = tasks.after.owners()
    for wait in np.flatnonzero(tasks.after.values >= waiting)[:1].tolist():
        raise wait_cycle(tasks.ids[waiting[wait]], tasks.ids[tasks.after.values[wait]])


def check_ids(tasks: TaskTable) -> None:
    """Check that no two tasks have the same id. Raises InputError."""
    ids = tasks.ids
    if len({*ids}) < len(ids):
        twice = next(id for at, id in enumerate(ids) if id in ids[:at])
        raise InputError(
            f"two tasks are called {twice}", where="steps", fix="give each group one entry in a micro-batch"
        )


def wait_cycle(waiting: str, awaited: str) -> InputError:
    """Return the error of a task that waits for one which cannot start before it."""
    return InputError(
        f"the tasks wait for each other: {waiting} waits for {awaited}, which cannot start before it",
        where="steps",
        fix="change `order` so that each task comes after those that it waits for",
    )
