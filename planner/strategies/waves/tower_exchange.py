"""What towers exchange once a step on the replicas that have them: gradients, and weights that the update sharded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.costs import Pricing, TowerSeconds
from planner.plan.mesh.synchronisation import reduces_gradients
from planner.plan.plan_file import Layout
from planner.plan.task import Task
from planner.specs.base import Layers, Ranks
from planner.specs.inputs import Inputs
from planner.strategies.assignment.rank_loads import FORWARD_SHARE
from planner.strategies.static.layouts_plan import pricing_for
from planner.strategies.waves.towers import on_replicas
from planner.units import MS

Prices = tuple[float, float]  # seconds of a reduction, and of a gather


@dataclass(frozen=True)
class TowerExchange:
    """The exchanges of towers, priced once for all sets of replicas that are as many in as many nodes."""

    inputs: Inputs
    layouts: Mapping[str, Layout]
    towers: Sequence[TowerSeconds]
    per_node: int  # replicas
    known: dict[tuple[int, tuple[int, ...], int], Prices] = field(default_factory=dict)
    pricings: dict[tuple[int, tuple[int, ...]], tuple[Pricing, Layout]] = field(default_factory=dict)

    def on_first(self, at: int, count: int) -> float:
        """Seconds of both exchanges of a tower on the first so many replicas, with nothing beside them."""
        return sum(self.of(at, np.arange(count), np.zeros(count, dtype=np.int64)))

    @property
    def constant(self) -> float:
        """Seconds of a step on each rank beside its passes and updates."""
        return self.inputs.timing.step_ms * MS

    def of(self, at: int, replicas: NDArray[np.int64], samples: NDArray[np.int64]) -> Prices:
        """Seconds of a tower's reduction and gather on these replicas; `samples`: of each replica of the cluster. The
        one with fewest samples hides least of the reduction behind its backward.
        """
        nodes = np.bincount(replicas // self.per_node)
        key = at, tuple(np.sort(nodes[nodes > 0]).tolist()), int(samples[replicas].min())
        if key not in self.known:
            self.known[key] = self.priced(at, replicas, key[1], key[2])
        return self.known[key]

    def priced(self, at: int, replicas: NDArray[np.int64], nodes: tuple[int, ...], fewest: int) -> Prices:
        """Compute what `of` caches."""
        tower = self.towers[at]
        if (at, nodes) not in self.pricings:
            layout = on_replicas(self.layouts[tower.name], replicas.tolist())
            self.pricings[at, nodes] = pricing_for(self.inputs, {**self.layouts, tower.name: layout}), layout
        pricing, layout = self.pricings[at, nodes]
        module = self.inputs.model.modules[tower.name]
        if not reduces_gradients(layout, module):
            return 0.0, 0.0
        every, ranks = Layers(range(module.layers)), Ranks(layout.ranks)
        backward = (1.0 - FORWARD_SHARE) * tower.by_count[fewest]
        reduction = pricing.exposed_seconds(Task(tower.name, every, "sync", None, "all", ranks), backward)
        gather = pricing.exposed_seconds(Task(tower.name, every, "gather", None, "all", ranks), backward / 2.0)
        return reduction, gather if layout.zero else 0.0
