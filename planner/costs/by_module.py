"""Prices of a module that was measured, or that somebody published: its fits, and what its ranks send each other."""

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
    """On ranks of one kind."""

    spec: Module
    layout: Layout
    cluster: Cluster
    machine: Machine
    costs: ModuleCosts

    @property
    def slower(self) -> float:
        """Of a measurement, what many ranks wait for the slowest of them is not known."""
        return 1.0

    def worked(self, seconds: float) -> Cost:
        return Cost(seconds, self.costs.source, self.costs.spread)

    def line(self, part: Part) -> tuple[Line, Cost]:
        """Compute, shared out; then what a group has to exchange for it, and the source of that."""
        costs, layout, network = costs_of_layers(self.costs, part.again), self.layout, self.machine.network
        ways = part.split.degree * layout.tp
        line = compute_line(costs, part.layers, part.ends, part.forward, ways)
        line += units_line(costs, layout, part.layers, part.ends, part.forward)
        there, found = places_of(part, layout, self.cluster), list[tuple[Line, Cost]]()
        if part.split.ulysses > 1:
            found.append(exchange_line(part, self.spec, costs, layout.dtype, there.heads, network))
        if part.split.ring > 1:
            attention = compute_line(costs, part.layers, False, part.forward, ways).quad
            found.append(ring_line(part, self.spec, layout.dtype, there.ring, network, attention))
        if layout.tp > 1 and of_one_rank(costs):
            found.append(tensor_line(part, self.spec, layout.dtype, there.tensor, network))
        for each, _ in found:
            line += each
        return line, summed(*(source for _, source in found)) if found else FREE

    def weights(self, part: Part) -> Line:
        """Of a backward, what makes gradients of weights; no task is measured that makes only these.

        `layer` makes nothing again where costs of layers that do stand beside it.
        """
        again = part.again == (("full", part.layers),) and "full" not in self.costs.recomputing
        return weights_line(self.costs, part.layers, part.ends, part.split.degree * self.layout.tp, again)

    def memory(self, part: Part) -> None:
        """Fits do not say what of a pass is bound by memory: all of it is taken for compute (compute/contention.py)."""

    def held(self, layers: Layers, ends: bool, split: Split, sizes: Sequence[int]) -> Held:
        """Bytes of a micro-batch's items on each rank of a group, in these layers."""
        costs = costs_of_layers(self.costs, mixed(self.layout, layers))
        tokens = sum(sizes) * costs.tp / (split.degree * self.layout.tp)
        kept = costs.layer.activation_kib_per_token * len(layers) / costs.layer.layers
        behind = costs.ends.activation_kib_per_token if ends and costs.ends else 0.0
        return Held(*(each * KIB * tokens for each in (kept, behind, costs.layer.working_kib_per_token)))

    def layer_lines(self) -> list[Line]:
        """Of one layer on a rank alone, forward and backward, in the mean."""
        costs = costs_of_layers(self.costs, mixed(self.layout, range(self.spec.layers)))
        return [compute_line(costs, 1, False, forward, 1) for forward in (True, False)]

    def exchanged(self, task: Task) -> tuple[Exchanged, Cost]:
        """What replicas owe each other of the task's parameters, and on whose word."""
        if self.costs.sharding == "included":
            return Exchanged(), FREE
        at, network = columns_of(self.layout), self.machine.network
        parts = held_by(task, self.spec, self.layout, self.cluster)
        each = [exchanged(part, at, network, self.machine.timing) for part in parts]
        kind = "all_gather" if task.phase == "gather" else "reduce_scatter"
        told = network.cost(kind, 1.0, parts[0].shard)
        return Exchanged(*(float(sum(numbers)) for numbers in zip(*each, strict=True))), told

    def update(self, task: Task) -> Cost:
        """The optimizer's pass over the parameters that a rank updates, behind what tp's ranks settle for it."""
        parts = held_by(task, self.spec, self.layout, self.cluster)
        seconds = updated(parts, columns_of(self.layout), self.costs.update_ns_per_parameter * NANO)
        own = self.worked(float(seconds))
        if self.layout.tp == 1 or not of_one_rank(self.costs):
            return own
        block = farthest(blocks_of(task.ranks, self.layout, ("tp",)), self.cluster)
        return summed(own, settled_cost(task.layers, self.spec, self.layout, block, self.machine.network))

    def sent(self, size_bytes: float, ranks: Group) -> Cost:
        """From rank to rank."""
        return self.machine.network.cost("p2p", size_bytes, ranks)
