"""What towers exchange once a step on the replicas that have them: gradients, and weights that the update sharded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.costs.pricing import Pricing
from planner.costs.tower_seconds import TowerSeconds
from planner.plan.mesh.synchronisation import reduces_gradients
from planner.plan.plan_file import Layout
from planner.plan.task import Task
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.hardware.profile import BACKWARD_SHARE
from planner.units import MS

Exchange = tuple[float, float]  # seconds of a reduction, and of a gather


@dataclass(frozen=True)
class TowerExchange:
    """The exchanges of towers, priced once for all sets of replicas that are as many in as many nodes."""

    towers: Sequence[TowerSeconds]
    layouts: Mapping[str, Layout]
    per_node: int  # replicas
    pricing: Callable[[dict[str, Layout]], Pricing]  # of these layouts
    known: dict[tuple[int, tuple[int, ...], int], Exchange] = field(default_factory=dict)
    priced: dict[tuple[int, tuple[int, ...]], tuple[Pricing, Layout]] = field(default_factory=dict)

    @cached_property
    def constant(self) -> float:
        """Seconds of a step on each rank beside its passes and updates."""
        prices = self.pricing({}).prices
        return prices.timing.step_ms * MS if prices.rates else 0.0

    def on_first(self, at: int, count: int) -> float:
        """Seconds of both exchanges of a tower on the first so many replicas, with nothing beside them."""
        return sum(self.of(at, np.arange(count), np.zeros(count, dtype=np.int64)))

    def of(self, at: int, replicas: NDArray[np.int64], samples: NDArray[np.int64]) -> Exchange:
        """Seconds of a tower's reduction and gather on these replicas; `samples`: of each replica of the cluster. The
        one with fewest samples hides least of the reduction behind its backward.
        """
        nodes = np.bincount(replicas // self.per_node)
        key = at, tuple(np.sort(nodes[nodes > 0]).tolist()), int(samples[replicas].min())
        if key not in self.known:
            self.known[key] = self.new(at, replicas, key[1], key[2])
        return self.known[key]

    def new(self, at: int, replicas: NDArray[np.int64], nodes: tuple[int, ...], fewest: int) -> Exchange:
        """Compute what `of` caches."""
        backward = BACKWARD_SHARE * self.towers[at].by_count[fewest]
        return self.beside(at, replicas, nodes, backward, backward / 2.0)

    def at_least(self, at: int, count: int, most: int, backward: float, forward: float) -> float:
        """Seconds of both exchanges at least on any so many of `most` replicas, beside a backward and a forward of so
        many seconds, without stragglers. Of replicas in so many nodes none exchange more quickly than as many whole
        nodes, but for the bytes that fewer have: (n − 1) / n of all.
        """
        nodes = -(-count // self.per_node)
        whole = np.arange(count if nodes == 1 else min(nodes * self.per_node, most))
        share = (count - 1) / count * len(whole) / (len(whole) - 1) if len(whole) > 1 else 1.0
        key = tuple(np.sort(np.bincount(whole // self.per_node)).tolist())
        share /= self.stragglers(at, whole, key)  # as if what hides, and what is exchanged, were both without these
        return share * sum(self.beside(at, whole, key, backward / share, forward / share))

    def stragglers(self, at: int, replicas: NDArray[np.int64], nodes: tuple[int, ...]) -> float:
        """How much longer all takes on these replicas for the slowest of them."""
        pricing, layout = self.pricing_on(at, replicas, nodes)
        task = Task(self.towers[at].name, Layers((0,)), "sync", None, "all", layout.ranks)
        return max(basis.straggler_factor for basis in pricing.rank_pricings(task))

    def pricing_on(self, at: int, replicas: NDArray[np.int64], nodes: tuple[int, ...]) -> tuple[Pricing, Layout]:
        """The prices of a tower on these replicas, and its layout there, once for so many in as many nodes."""
        if (at, nodes) not in self.priced:
            name = self.towers[at].name
            layout = on_replicas(self.layouts[name], replicas.tolist())
            self.priced[at, nodes] = self.pricing({name: layout}), layout
        return self.priced[at, nodes]

    def beside(
        self, at: int, replicas: NDArray[np.int64], nodes: tuple[int, ...], backward: float, forward: float
    ) -> Exchange:
        """Seconds of a tower's exchanges that so many seconds of a backward, and of a forward, do not hide."""
        (pricing, layout), tower = self.pricing_on(at, replicas, nodes), self.towers[at]
        module = pricing.models[tower.name]
        if not reduces_gradients(layout, module):
            return 0.0, 0.0
        every = Layers(range(module.layers))
        reduction = pricing.exposed_seconds(Task(tower.name, every, "sync", None, "all", layout.ranks), backward)
        gather = pricing.exposed_seconds(Task(tower.name, every, "gather", None, "all", layout.ranks), forward)
        return reduction, gather if layout.zero else 0.0


def on_replicas(layout: Layout, replicas: Sequence[int]) -> Layout:
    """A layout on these replicas alone; one of them sends no gradients."""
    ranks = Ranks(rank for replica in replicas for rank in replica_ranks(layout, replica))
    gradients = layout.gradients if len(replicas) > 1 else "float32"
    return with_fields(layout, ranks=ranks, dp=len(replicas), gradients=gradients)


def replica_ranks(layout: Layout, replica: int) -> Ranks:
    """The ranks of a replica."""
    return Ranks(range(replica * layout.tp, (replica + 1) * layout.tp))
