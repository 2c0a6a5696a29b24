"""The order of modules that feed no other, before tasks of encoders are inserted, and what it is made from.

Plans that differ in encoders, or in which items groups have, have the same one, and a search makes many of these one
after another.

The order has nominal times: when tasks would run if a forward took one unit of time, a backward two, and all else,
encoders too, none. Before anything is priced, this says which passes of different ranks run side by side, and so where
a task of an encoder holds up no pass: in front of what its ranks do when it is needed, behind what they do when its
gradient comes. With an encoder that takes no time the step is as long as without it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.plan.mesh.identical_groups import EquivalentRanks
from planner.plan.plan_file import Step
from planner.plan.schedules import Slot
from planner.plan.task import Phase
from planner.plan.tasks.merge_orders import first_of_unit, merge_orders, topological_order
from planner.plan.tasks.ragged_array import IntArray
from planner.plan.tasks.step_draft import StepDraft
from planner.plan.tasks.task_inserter import TaskInserter
from planner.plan.tasks.task_table import TaskTable

NOMINAL_DURATIONS: Mapping[Phase, float] = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
Slots = list[list[Slot]]  # of each pipeline rank
Floats = NDArray[np.float64]


class NominalTimes(NamedTuple):
    """Start and end of each task, by number; NaN: it has none."""

    starts: Floats
    ends: Floats


def nominal_times(tasks: TaskTable, synchronised: Mapping[str, Collection[Phase]]) -> NominalTimes:
    """Return when each of some sorted tasks of micro-batches runs, those of each rank in their order. `synchronised`:
    by module, the phases whose passes of one micro-batch and stage start together.
    """
    alike = EquivalentRanks(kind.ranks for kind in tasks.kinds)
    ranks_of = [alike.among(kind.ranks) for kind in tasks.kinds]
    took = [NOMINAL_DURATIONS.get(kind.phase, 0.0) for kind in tasks.kinds]
    after, kinds = tasks.after.lists(), tasks.kind.tolist()
    together: dict[int, list[int]] = defaultdict(list)
    for place, first in enumerate(first_of_unit(tasks, synchronised).tolist()):
        together[first].append(place)
    free: dict[int, float] = defaultdict(float)
    starts, ends = [0.0] * len(kinds), [0.0] * len(kinds)
    for places in together.values():
        start = 0.0
        for place in places:
            for end in (*[ends[awaited] for awaited in after[place]], *[free[rank] for rank in ranks_of[kinds[place]]]):
                if end > start:
                    start = end
        for place in places:
            starts[place] = start
            ends[place] = end = start + took[kinds[place]]
            for rank in ranks_of[kinds[place]]:
                free[rank] = end
    return NominalTimes(np.array(starts), np.array(ends))


class NominalOrder:
    """The order of `line` by its times. Tasks of encoders, which have none, are when what is behind the last one before
    them is.
    """

    def __init__(self, line: TaskInserter, times: NominalTimes) -> None:
        self.line, self.table = line, line.table
        self.alike = EquivalentRanks(kind.ranks for kind in self.table.kinds)
        self.ranks_of = [
            self.alike.among(kind.ranks) if kind.phase in NOMINAL_DURATIONS else () for kind in self.table.kinds
        ]
        known = line.order < len(times.starts)
        starts, ends = np.full((2, len(known)), np.nan)
        starts[known], ends[known] = (each[line.order[known]] for each in times)
        starts[self.table.micro_batch < 0] = inf
        self.timed = np.isfinite(starts)
        self.starts = np.fmax.accumulate(np.fmax(starts, 0.0))
        self.ends = np.where(self.timed, ends, self.starts)
        self.passes: dict[int, IntArray] = {}  # rank → places of its passes

    def passes_of(self, rank: int) -> IntArray:
        """Return the places of the passes of a rank, in order."""
        if rank not in self.passes:
            own = np.array([rank in ranks for ranks in self.ranks_of], dtype=np.bool_)
            self.passes[rank] = np.flatnonzero(own[self.table.kind] & self.timed)
        return self.passes[rank]

    def running(self, ranks: Iterable[int], position: int) -> int:
        """Return the position in front of the passes that these ranks run when the task at `position` starts, or then
        start, and of all others that start then: of ranks that are alike, none is in front of the others.
        """
        now = self.starts[position] if position < len(self.starts) else inf
        found = [int(np.searchsorted(self.starts, now))]
        for rank in self.alike.among(ranks):
            own = self.passes_of(rank)
            at = int(np.searchsorted(self.ends[own], now, side="right"))  # behind those that have ended by then
            found += [int(own[at])] if at < len(own) else []
        return min(found)

    def behind(self, numbers: Collection[int]) -> int:
        """Return the position in front of all that starts when these tasks of the order have ended."""
        return int(np.searchsorted(self.starts, self.ends[self.line.positions(numbers)].max()))


KEPT = 8  # orders, of up to a million tasks each


@dataclass(frozen=True, slots=True)
class ReadersOrder:
    """What runs in micro-batches of modules that feed no other, by number, and when."""

    slots: dict[str, Slots]
    numbers: IntArray
    times: NominalTimes


class LastReaders:
    """The orders that were made last, each with all that it follows from; the last first. A search goes back and forth
    between few layouts of readers.
    """

    def __init__(self) -> None:
        self.kept: list[tuple[list[Any], ReadersOrder]] = []

    def order_of(
        self, draft: StepDraft, names: Collection[str], step: Step, synchronised: Mapping[str, Collection[Phase]]
    ) -> ReadersOrder:
        """Return the order of these modules, which feed no other: a kept one, if it follows from the same."""
        source = [
            (name, step.order_of(name), synchronised.get(name), *draft.modules[name].work.order_source)
            for name in names
        ]
        found = next((order for of, order in self.kept if of == source), None)
        others = [(of, order) for of, order in self.kept if order is not found]
        if found is None:
            found = readers_order(draft, names, step, synchronised)
        self.kept = [(source, found), *others[: KEPT - 1]]
        return found


def readers_order(
    draft: StepDraft, names: Collection[str], step: Step, synchronised: Mapping[str, Collection[Phase]]
) -> ReadersOrder:
    """Return the order that merges the tasks of modules with schedules of their own, by its nominal times."""
    slots = {name: draft.modules[name].work.slots(step.order_of(name)) for name in names}
    numbers = merged_tasks(draft, slots)
    tasks = draft.table(numbers)
    places = topological_order(tasks, synchronised)
    tasks, numbers = tasks.reordered(places), numbers[places]
    times = nominal_times(tasks, synchronised)
    by_number = np.full((2, draft.size), np.nan)
    by_number[:, numbers] = times
    return ReadersOrder(slots, numbers[np.argsort(times.starts, kind="stable")], NominalTimes(*by_number))


def merged_tasks(draft: StepDraft, slots: Mapping[str, Slots]) -> IntArray:
    """Return the tasks of modules with schedules of their own, by number, merged into one order."""
    lists = [own for name, of_ranks in slots.items() for own in draft.modules[name].in_slots(of_ranks)]
    numbers = np.array([number for own in lists for number in own], dtype=np.int64)
    return numbers[merge_orders(draft.table(numbers), [*map(len, lists)])]
