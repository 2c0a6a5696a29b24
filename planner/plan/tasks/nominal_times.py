"""When tasks would run if a forward took one unit of time, a backward two, and all else, encoders too, none.

Before anything is priced, this says which passes of different ranks run side by side, and so where a task of an encoder
holds up no pass: in front of what its ranks do when it is needed, behind what they do when its gradient comes. With an
encoder that takes no time the step is as long as without it.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from planner.plan.mesh.equivalent_ranks import EquivalentRanks
from planner.plan.task import Phase, Task
from planner.plan.tasks.merge_orders import first_of_unit, topological_order

NOMINAL_DURATIONS: Mapping[Phase, float] = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
NominalTimes = Mapping[str, tuple[float, float]]  # id → start and end


def in_nominal_order(
    order: Sequence[Task], synchronised: Mapping[str, Collection[Phase]]
) -> tuple[list[Task], NominalTimes]:
    """Return tasks by their times, those of each rank in their order, and these times; what runs once a step has none,
    and comes last. `synchronised`: by module, the phases whose passes of one micro-batch and stage start together.
    """
    order = topological_order(order, synchronised)
    together: dict[int, list[Task]] = defaultdict(list)
    for task, first in zip(order, first_of_unit(order, synchronised), strict=True):
        together[first].append(task)
    alike = EquivalentRanks(task.ranks for task in order)
    free: dict[int, float] = defaultdict(float)
    times: dict[str, tuple[float, float]] = {}
    for tasks in together.values():
        if tasks[0].micro_batch is None:
            continue
        awaited = [times[id][1] for task in tasks for id in task.after if id in times]
        start = max([*awaited, *(free[rank] for task in tasks for rank in alike.of(task.ranks))], default=0.0)
        for task in tasks:
            end = start + NOMINAL_DURATIONS.get(task.phase, 0.0)
            times[task.id] = start, end
            free.update(dict.fromkeys(alike.of(task.ranks), end))
    nothing = (inf, inf)
    return sorted(order, key=lambda task: times.get(task.id, nothing)[0]), times


class NominalOrder:
    """An order of tasks by their times. Tasks of encoders, which have none, are when what is behind the last one before
    them is.
    """

    def __init__(self, order: Sequence[Task], times: NominalTimes) -> None:
        self.order, self.alike = order, EquivalentRanks(task.ranks for task in order)
        self.starts: list[float] = []
        self.ends: dict[str, float] = {}
        self.passes: dict[int, list[tuple[float, int]]] = defaultdict(list)  # rank → ends and positions of its passes
        now = 0.0
        for position, task in enumerate(order):
            start, end = times.get(task.id, (now, now)) if task.micro_batch is not None else (inf, inf)
            now = max(now, start)
            self.starts.append(now)
            self.ends[task.id] = end
            if task.id in times and task.phase in NOMINAL_DURATIONS:
                for rank in self.alike.of(task.ranks):
                    self.passes[rank].append((end, position))

    def running(self, ranks: Iterable[int], position: int) -> int:
        """Return the position in front of the passes that these ranks run when the task at `position` starts, or then
        start; at most that position.
        """
        now = self.starts[position] if position < len(self.starts) else inf
        found = [position]
        for rank in self.alike.among(ranks):
            own = self.passes.get(rank, [])
            at = bisect_left(own, (now, len(self.order)))  # behind those that have ended by then
            found += [own[at][1]] if at < len(own) else []
        return min(found)

    def behind(self, ids: Iterable[str]) -> int:
        """Return the position in front of all that starts when these tasks of the order have ended."""
        return bisect_left(self.starts, max(self.ends[id] for id in ids))
