"""Prices of a module with fits, measured or published: compute from the fits, and communication from the
network model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.costs.compute.fit_lines import costs_with_recompute, fit_line, fit_weight_gradient_line, fsdp_line
from planner.costs.cost_lines import NO_COST, Cost, CostLine, total_cost
from planner.costs.layer_pass import CrossReads, LayerPass, recompute_counts
from planner.costs.layout_columns import columns_of
from planner.costs.machine_model import MachineModel
from planner.costs.memory.token_caps import ActivationBytes
from planner.costs.network.pass_exchange import expert_line, ring_line, ulysses_line
from planner.costs.network.rank_groups import (
    expert_groups,
    farthest_group,
    pass_groups,
    rank_blocks,
    replicated_by_task,
)
from planner.costs.network.replica_exchange import ReplicaExchange, replica_exchange, updated_parameters
from planner.costs.network.tensor_parallel_exchange import (
    measured_on_one_rank,
    replicated_gradients_cost,
    tensor_parallel_line,
)
from planner.costs.network_model import CommGroup
from planner.errors import InputError
from planner.plan.mesh.rank_mesh import expert_shards
from planner.plan.plan_file import Layout
from planner.plan.task import Task
from planner.specs.base import Layers, with_fields
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import ModuleCosts
from planner.specs.layers import Module
from planner.specs.sequence_sharding import SequenceSplit
from planner.units import KIB, NS


@dataclass(frozen=True, slots=True)
class FitPricing:
    """Prices a module by its fits, on ranks of one device kind."""

    spec: Module
    layout: Layout
    cluster: Cluster
    machine: MachineModel
    costs: ModuleCosts

    @property
    def straggler_factor(self) -> float:
        """The straggler factor: 1, as measured seconds do not tell how long many ranks wait for the slowest of them."""
        return 1.0

    def compute_cost(self, seconds: float) -> Cost:
        """Seconds of compute with the source and spread of the fits."""
        return Cost(seconds, self.costs.source, self.costs.spread)

    def pass_line(self, part: LayerPass) -> tuple[CostLine, Cost]:
        """The cost line of a pass, sharded over its group, communication included; and one token's communication, for
        its source.
        """
        costs, layout, network = costs_with_recompute(self.costs, part.recompute), self.layout, self.machine.network
        degree = part.split.degree * layout.tp
        line = self.compute_line(costs, part, degree)
        line += fsdp_line(costs, layout, part.layers, part.embedding_head, part.forward)
        groups, exchanges = pass_groups(part, layout, self.cluster), list[tuple[CostLine, Cost]]()
        if part.split.ulysses > 1:
            exchanges.append(ulysses_line(part, self.spec, costs, layout.dtype, groups.heads, network))
        if part.split.ring > 1:
            attention = fit_line(costs, part.layers, False, part.forward, degree).quad
            exchanges.append(ring_line(part, self.spec, layout.dtype, groups.ring, network, attention))
        if layout.tp > 1 and measured_on_one_rank(costs):
            exchanges.append(tensor_parallel_line(part, self.spec, layout.dtype, groups.tensor, network))
        if expert_shards(layout) > 1 and measured_on_one_rank(costs):
            over = expert_groups(part.ranks, layout, self.cluster)
            exchanges.append(expert_line(part, self.spec, layout, over, network))
        for each, _ in exchanges:
            line += each
        return line, total_cost(*(source for _, source in exchanges)) if exchanges else NO_COST

    def compute_line(self, costs: ModuleCosts, part: LayerPass, degree: int) -> CostLine:
        """Compute of a pass: as measured, of frozen layers too; else a backward without what frozen weights save."""
        plain = all(how == "none" for how, _ in part.recompute)
        if costs.frozen and plain and not self.spec.trains_layers and not (part.forward and part.kept):
            layers = fit_line(with_fields(costs, layer=costs.frozen), part.layers, False, part.forward, degree)
            ends = fit_line(costs, 0, part.embedding_head, part.forward, degree)
            saved = self.weight_gradients(part._replace(layers=0), trained=False)
            return layers + (ends if part.forward else ends + saved * -1.0)
        line = fit_line(costs, part.layers, part.embedding_head, part.forward, degree)
        if part.forward or self.spec.trained == "all":
            return line
        return line + self.weight_gradients(part, trained=False) * -1.0

    def weight_gradient_line(self, part: LayerPass) -> CostLine:
        """The cost line of a backward's weight gradients (W), which no profile measures by itself."""
        return self.weight_gradients(part, trained=True)

    def weight_gradients(self, part: LayerPass, trained: bool) -> CostLine:
        """The cost line of gradients of weights: of those that are trained, or of those that are frozen.

        `layer` includes recomputation only where no fits of recomputing layers stand beside it.
        """
        recomputes = part.recompute == (("full", part.layers),) and "full" not in self.costs.recomputing
        layers = part.layers if self.spec.trains_layers is trained else 0
        ends = part.embedding_head and self.spec.trains_projector is trained
        return fit_weight_gradient_line(self.costs, layers, ends, part.split.degree * self.layout.tp, recomputes)

    def memory_lines(self, part: LayerPass) -> None:
        """None: fits do not tell how much of a pass is bound by memory, so all of it counts as compute
        (compute/contention.py).
        """

    def activation_bytes(
        self,
        layers: Layers,
        ends: bool,
        split: SequenceSplit,
        sizes: Sequence[int],
        reads: CrossReads | None = None,
    ) -> ActivationBytes:
        """Bytes of activations that a micro-batch of `sizes` tokens leaves on each rank of a group, in these layers.
        Modules with fits have no cross attention, and read nothing.
        """
        costs = costs_with_recompute(self.costs, recompute_counts(self.layout, layers))
        tokens = sum(sizes) * costs.tp / (split.degree * self.layout.tp)
        layer_kib = costs.layer.activation_kib_per_token * len(layers) / costs.layer.layers
        head_kib = costs.ends.activation_kib_per_token if ends and costs.ends else 0.0
        return ActivationBytes(
            *(each * KIB * tokens for each in (layer_kib, head_kib, costs.layer.working_kib_per_token))
        )

    def named_bytes(self, layers: Layers) -> float:
        """Raises InputError: of what layers keep, no kind was measured by itself."""
        message = "the profile measured the activations of layers as a whole, and no kinds of them"
        raise InputError(message, where="layouts", fix="offload: a share, or layers priced by rates")

    @property
    def layer_lines(self) -> list[CostLine]:
        """Cost lines of one layer on one rank, forward and backward, in the mean of all layers."""
        costs = costs_with_recompute(self.costs, recompute_counts(self.layout, range(self.spec.layers)))
        return [fit_line(costs, 1, False, forward, 1) for forward in (True, False)]

    def replica_exchange(self, task: Task) -> tuple[ReplicaExchange, Cost]:
        """Seconds in which replicas exchange the task's gradients and parameters; and a cost with their source."""
        if self.costs.sharding == "included":
            return ReplicaExchange(), NO_COST
        at, network = columns_of(self.layout), self.machine.network
        parts = replicated_by_task(task, self.spec, self.layout, self.cluster)
        each = [replica_exchange(part, at, network, self.machine.timing) for part in parts]
        kind = "all_gather" if task.phase == "gather" else "reduce_scatter"
        source = network.collective_cost(kind, 1.0, parts[0].shard)
        return ReplicaExchange(*(float(sum(numbers)) for numbers in zip(*each, strict=True))), source

    def update_cost(self, task: Task, with_step: bool = True) -> Cost:
        """The optimizer's step over the parameters that a rank updates, and the all-reduce over tp of replicated
        gradients. The profile measured a step's constant with the update of every module.
        """
        parts = replicated_by_task(task, self.spec, self.layout, self.cluster)
        if self.layout.optimizer_offload:
            message = "moments are in host memory, and the profile measured the update on the device alone"
            raise InputError(message, where="layouts", fix="optimizer_offload: 0, or layers priced by rates")
        seconds = updated_parameters(parts, columns_of(self.layout)) * self.costs.update_ns_per_parameter * NS
        own = self.compute_cost(float(seconds))
        if self.layout.tp == 1 or not measured_on_one_rank(self.costs) or self.spec.trained != "all":
            return own
        block = farthest_group(rank_blocks(task.ranks, self.layout, ("tp",)), self.cluster)
        return total_cost(
            own, replicated_gradients_cost(task.layers, self.spec, self.layout, block, self.machine.network)
        )

    def send_cost(self, size_bytes: float, ranks: CommGroup) -> Cost:
        """A point-to-point send."""
        return self.machine.network.collective_cost("p2p", size_bytes, ranks)
