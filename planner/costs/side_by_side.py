"""What passes and exchanges of several modules on the same ranks cost each other: no gap is free.

Beside an exchange of S seconds that a device waits for, passes of other modules take C seconds of compute: with w the
share of the shorter that is waited for all the same (`timing.overlapped`), both are done after

    max(S, C) + w · min(S, C).

Exchanges once a step (reductions, gathers of updated weights) run beside the passes of other modules that their ranks
have between what the exchange waits for and what waits for it: each side takes w · min(S, C) longer. Where the software
exchanges nothing beside compute (`timing.overlaps_replicas`), w is 1 for passes that no placement puts there.

A pass that a placement puts beside others (`Task.beside`) has kernels of its own while they exchange: what its ranks
have of other modules, from there until the next such pass or until somebody waits for it, is exchanged for S seconds
and computes for C. The pass, with c of compute and s of exchange, takes (1 − w) · (min(S, c) + min(s, C)) less.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.costs.cost_lines import Cost
from planner.plan.mesh.identical_groups import EquivalentRanks
from planner.plan.task import PASS_PHASES, Task
from planner.plan.tasks.ragged_array import IntArray
from planner.plan.tasks.task_table import TaskTable

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SideBySide:
    """The tasks of a step in order, with what each costs alone. `waited`: w; `unplaced`: w of passes that no placement
    puts beside an exchange.
    """

    tasks: TaskTable
    costs: Sequence[Cost]
    waited: float
    unplaced: float

    def changed(self) -> dict[int, Cost]:
        """Place → its cost, of all that take more or less than alone."""
        more: dict[int, float] = defaultdict(float)
        for place, seconds in (*self.waits_for_exchanges(), *self.hidden_in_gaps()):
            more[place] += seconds
        changed = {place: (self.costs[place], seconds) for place, seconds in sorted(more.items()) if seconds}
        return {place: replace(cost, value=cost.value + seconds) for place, (cost, seconds) in changed.items()}

    def waits_for_exchanges(self) -> Iterator[tuple[int, float]]:
        """Yield exchanges once a step, and the passes beside them, with the seconds that each takes longer."""
        for at in self.once:
            kind, longer = self.kind(at), dict[int, float]()
            for rank in self.alike.among(kind.ranks) if self.seconds[at] else ():
                beside, together = self.beside_exchange(at, rank, kind.module)
                waits = self.waited_beside(beside) * together
                for place, seconds in (*zip(beside.tolist(), waits.tolist(), strict=True), (at, float(waits.sum()))):
                    longer[place] = max(seconds, longer.get(place, 0.0))
            yield from longer.items()

    def beside_exchange(self, at: int, rank: int, module: str) -> tuple[IntArray, Floats]:
        """The passes that a rank has of other modules between its module's work on all ranks of an exchange and its own
        behind that, and the seconds of each that the exchange lasts.
        """
        begin = max(self.last_before(at, each, module) for each in self.alike.among(self.kind(at).ranks))
        behind = self.computed(rank, module)
        end = next(iter(behind[behind > at]), len(self.costs))
        beside = self.between(rank, module, begin, end)
        whole = float(self.seconds[beside].sum())
        return beside, (min(1.0, self.seconds[at] / whole) if whole else 0.0) * self.seconds[beside]

    def waited_beside(self, passes: IntArray) -> Floats:
        """Of passes beside an exchange once a step, the share of the shorter that is waited for."""
        return np.where(self.placed[passes], self.waited, self.unplaced)

    def hidden_in_gaps(self) -> Iterator[tuple[int, float]]:
        """Yield passes that are placed beside others, with the seconds that each takes less, below 0."""
        found: dict[int, float] = {}
        for rank in self.alike.among({rank for kind in self.tasks.kinds if kind.beside for rank in kind.ranks}):
            for at, computed, exchanged in self.beside_passes(rank):
                found[at] = min(computed + exchanged, found.get(at, computed + exchanged))
        yield from ((at, -(1.0 - self.waited) * hidden) for at, hidden in found.items())

    def beside_passes(self, rank: int) -> Iterator[tuple[int, float, float]]:
        """Yield the passes of a rank that are placed beside others, with the seconds in which each computes while these
        exchange, and exchanges while these compute.
        """
        passes = self.of_rank[rank]
        own = passes[self.placed[passes]]
        for at, following in pairwise([*own.tolist(), len(self.costs)]):
            beside = self.between(rank, self.kind(at).module, at, min(following, int(self.needed[at])))
            exchanged = float(self.exchanged[beside].sum())
            computed = float(self.seconds[beside].sum()) - exchanged
            cost = self.costs[at]
            yield at, min(exchanged, cost.value - cost.comm), min(cost.comm, computed)

    def between(self, rank: int, module: str, begin: int, end: int) -> IntArray:
        """The passes of other modules that a rank has between two places."""
        passes = self.of_rank[rank]
        inside = passes[np.searchsorted(passes, begin, side="right") : np.searchsorted(passes, end)]
        others: IntArray = inside[self.modules[self.tasks.kind[inside]] != module]
        return others

    def last_before(self, at: int, rank: int, module: str) -> int:
        """The place of a module's last pass or update on a rank before another place; −1: it has none."""
        own = self.computed(rank, module)
        return int(own[own < at].max(initial=-1))

    def computed(self, rank: int, module: str) -> IntArray:
        """The places of a module's passes and updates on a rank."""
        if (rank, module) not in self.found:
            kinds = (k.module == module and k.stream == "compute" and rank in k.ranks for k in self.tasks.kinds)
            self.found[rank, module] = np.flatnonzero(np.array([*kinds])[self.tasks.kind])
        return self.found[rank, module]

    def kind(self, at: int) -> Task:
        """The kind of a task."""
        kind: Task = self.tasks.kinds[self.tasks.kind[at]]
        return kind

    @cached_property
    def found(self) -> dict[tuple[int, str], IntArray]:
        """What `computed` found."""
        return {}

    @cached_property
    def once(self) -> list[int]:
        """The places of exchanges once a step."""
        exchanges = self.tasks.where(lambda kind: kind.phase in ("sync", "gather"))
        found: list[int] = exchanges[self.tasks.micro_batch[exchanges] < 0].tolist()
        return found

    @cached_property
    def seconds(self) -> Floats:
        """Of each task alone, (n,)."""
        return np.array([cost.value for cost in self.costs])

    @cached_property
    def exchanged(self) -> Floats:
        """The part of these in which it waits for exchanges, (n,)."""
        return np.array([cost.comm for cost in self.costs])

    @cached_property
    def placed(self) -> NDArray[np.bool_]:
        """Whether a placement puts each task beside others, (n,)."""
        return self.tasks.column(lambda kind: kind.beside, np.bool_)

    @cached_property
    def modules(self) -> NDArray[np.str_]:
        """Of each kind."""
        return np.array([kind.module for kind in self.tasks.kinds])

    @cached_property
    def alike(self) -> EquivalentRanks:
        """One rank of each kind among those that compute the same."""
        return EquivalentRanks(kind.ranks for kind in self.tasks.kinds if kind.stream == "compute")

    @cached_property
    def of_rank(self) -> dict[int, IntArray]:
        """Rank, one of each kind → the places of its passes."""
        passes = [kind.phase in PASS_PHASES for kind in self.tasks.kinds]
        on: dict[int, list[int]] = {rank: [] for rank in {*self.alike.representative.values()}}
        for number, kind in enumerate(self.tasks.kinds):
            for rank in self.alike.among(kind.ranks) if passes[number] else ():
                on[rank].append(number)
        return {rank: np.flatnonzero(np.isin(self.tasks.kind, own)) for rank, own in on.items()}

    @cached_property
    def needed(self) -> IntArray:
        """The place of the first task of a device's compute that waits for each task, over transfers too, (n,)."""
        waiting, awaited = self.tasks.after.owners(), self.tasks.after.values
        computes = self.tasks.column(lambda kind: kind.stream == "compute", np.bool_)[waiting]
        found, before = np.full(len(self.costs), len(self.costs)), None
        while before is None or (found != before).any():
            before = found.copy()
            np.minimum.at(found, awaited, np.where(computes, waiting, before[waiting]))
        return found
