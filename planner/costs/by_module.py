"""Prices of a module with fits, measured or published: compute from the fits, and communication from the
network model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.costs.columns import columns_of
from planner.costs.compute.fsdp import units_line
from planner.costs.compute.lines import Line
from planner.costs.compute.machine import Machine
from planner.costs.compute.measured import compute_line, weights_line
from planner.costs.compute.recomputing import costs_of_layers
from planner.costs.cost import FREE, Cost, summed
from planner.costs.memory.caps import Held
from planner.costs.network.network import Group
from planner.costs.network.reduced import blocks_of, farthest, held_by, places_of
from planner.costs.network.replicas import Exchanged, exchanged, updated
from planner.costs.network.sequence import exchange_line, ring_line
from planner.costs.network.tensor import of_one_rank, settled_cost, tensor_line
from planner.costs.part import Part, mixed
from planner.plan.model import Layout, Split
from planner.plan.task import Task
from planner.specs.base import Layers
from planner.specs.cluster import Cluster
from planner.specs.layers import Module
from planner.specs.profile import ModuleCosts
from planner.units import KIB

NANO = 1e-9


@dataclass(frozen=True, slots=True)
class ByModule:
    """Prices a module by its fits, on ranks of one device kind."""

    spec: Module
    layout: Layout
    cluster: Cluster
    machine: Machine
    costs: ModuleCosts

    @property
    def slower(self) -> float:
        """The straggler factor: 1, as measured seconds do not tell how long many ranks wait for the slowest of them."""
        return 1.0

    def worked(self, seconds: float) -> Cost:
        """Seconds of compute with the source and spread of the fits."""
        return Cost(seconds, self.costs.source, self.costs.spread)

    def line(self, part: Part) -> tuple[Line, Cost]:
        """The cost line of a pass, sharded over its group, communication included; and one token's communication, for
        its source.
        """
        costs, layout, network = costs_of_layers(self.costs, part.again), self.layout, self.machine.network
        degree = part.split.degree * layout.tp
        line = compute_line(costs, part.layers, part.ends, part.forward, degree)
        line += units_line(costs, layout, part.layers, part.ends, part.forward)
        groups, exchanges = places_of(part, layout, self.cluster), list[tuple[Line, Cost]]()
        if part.split.ulysses > 1:
            exchanges.append(exchange_line(part, self.spec, costs, layout.dtype, groups.heads, network))
        if part.split.ring > 1:
            attention = compute_line(costs, part.layers, False, part.forward, degree).quad
            exchanges.append(ring_line(part, self.spec, layout.dtype, groups.ring, network, attention))
        if layout.tp > 1 and of_one_rank(costs):
            exchanges.append(tensor_line(part, self.spec, layout.dtype, groups.tensor, network))
        for each, _ in exchanges:
            line += each
        return line, summed(*(source for _, source in exchanges)) if exchanges else FREE

    def weights(self, part: Part) -> Line:
        """The cost line of a backward's weight gradients (W), which no profile measures by itself.

        `layer` includes recomputation only where no fits of recomputing layers stand beside it.
        """
        recomputes = part.again == (("full", part.layers),) and "full" not in self.costs.recomputing
        return weights_line(self.costs, part.layers, part.ends, part.split.degree * self.layout.tp, recomputes)

    def memory(self, part: Part) -> None:
        """None: fits do not tell how much of a pass is bound by memory, so all of it counts as compute
        (compute/contention.py).
        """

    def held(self, layers: Layers, ends: bool, split: Split, sizes: Sequence[int]) -> Held:
        """Bytes of activations that a micro-batch of `sizes` tokens leaves on each rank of a group, in these layers."""
        costs = costs_of_layers(self.costs, mixed(self.layout, layers))
        tokens = sum(sizes) * costs.tp / (split.degree * self.layout.tp)
        layer_kib = costs.layer.activation_kib_per_token * len(layers) / costs.layer.layers
        head_kib = costs.ends.activation_kib_per_token if ends and costs.ends else 0.0
        return Held(*(each * KIB * tokens for each in (layer_kib, head_kib, costs.layer.working_kib_per_token)))

    def layer_lines(self) -> list[Line]:
        """Cost lines of one layer on one rank, forward and backward, in the mean of all layers."""
        costs = costs_of_layers(self.costs, mixed(self.layout, range(self.spec.layers)))
        return [compute_line(costs, 1, False, forward, 1) for forward in (True, False)]

    def exchanged(self, task: Task) -> tuple[Exchanged, Cost]:
        """Seconds in which replicas exchange the task's gradients and parameters; and a cost with their source."""
        if self.costs.sharding == "included":
            return Exchanged(), FREE
        at, network = columns_of(self.layout), self.machine.network
        parts = held_by(task, self.spec, self.layout, self.cluster)
        each = [exchanged(part, at, network, self.machine.timing) for part in parts]
        kind = "all_gather" if task.phase == "gather" else "reduce_scatter"
        source = network.cost(kind, 1.0, parts[0].shard)
        return Exchanged(*(float(sum(numbers)) for numbers in zip(*each, strict=True))), source

    def update(self, task: Task) -> Cost:
        """The optimizer's step over the parameters that a rank updates, and the all-reduce over tp of replicated
        gradients.
        """
        parts = held_by(task, self.spec, self.layout, self.cluster)
        seconds = updated(parts, columns_of(self.layout), self.costs.update_ns_per_parameter * NANO)
        own = self.worked(float(seconds))
        if self.layout.tp == 1 or not of_one_rank(self.costs):
            return own
        block = farthest(blocks_of(task.ranks, self.layout, ("tp",)), self.cluster)
        return summed(own, settled_cost(task.layers, self.spec, self.layout, block, self.machine.network))

    def sent(self, size_bytes: float, ranks: Group) -> Cost:
        """A point-to-point send."""
        return self.machine.network.cost("p2p", size_bytes, ranks)
