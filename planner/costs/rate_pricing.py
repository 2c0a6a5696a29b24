"""Prices of a module without fits: its shape at the rates of its device, with the coefficients of its framework."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from planner.costs.compute.layer_work import LayerWork
from planner.costs.cost_lines import Cost, CostLine
from planner.costs.layer_pass import NO_READS, CrossReads, LayerPass, RecomputeCounts, recompute_counts
from planner.costs.layout_columns import LayoutColumns, Number, columns_of, recompute_columns
from planner.costs.machine_model import MachineModel
from planner.costs.memory.allowed_memory import device_accounting
from planner.costs.memory.footprint import layer_token_bytes, loss_bytes, token_bytes
from planner.costs.memory.token_caps import ActivationBytes
from planner.costs.network.layer_traffic import LayerGroups
from planner.costs.network.rank_groups import pass_groups, replicated_by_task
from planner.costs.network.replica_exchange import (
    ReplicaExchange,
    parameter_update_seconds,
    replica_exchange,
    shards_seconds,
    updated_parameters,
)
from planner.costs.network_model import CommGroup, strided_group
from planner.costs.rate_lines import (
    head_line,
    layers_line,
    memory_traffic_line,
    stage_constant_line,
    weight_gradient_line,
)
from planner.plan.plan_file import Layout
from planner.plan.task import Task
from planner.specs.base import Layers, Ranks
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.hardware.cluster import Cluster
from planner.specs.layers import Module
from planner.specs.layers.blocks import LayerKind
from planner.specs.sequence_sharding import SequenceSplit
from planner.units import MS

Key = tuple[object, ...]


@dataclass(frozen=True)
class RatePricing:
    """Prices a module by rates, on ranks of one device kind."""

    spec: Module
    layout: Layout
    cluster: Cluster
    machine: MachineModel
    spread: float  # of a step's seconds
    reads: CrossReads = NO_READS  # of cross attention, in the mean of all items
    found: dict[Key, CostLine] = field(default_factory=dict)  # cost lines of passes, by all that they depend on
    groups: dict[tuple[Ranks, SequenceSplit], LayerGroups] = field(default_factory=dict)  # of passes on these ranks
    tokens: dict[Key, tuple[float, float]] = field(default_factory=dict)  # bytes of activations that one token leaves

    @cached_property
    def straggler_factor(self) -> float:
        """The straggler factor: how much longer everything takes on many ranks, of which the slowest is critical."""
        return 1.0 + float(self.machine.jitter(len(self.layout.ranks)))

    @cached_property
    def accounting(self) -> MemoryCoefficients:
        """The memory coefficients on the device."""
        return device_accounting(self.machine.device, self.machine.accounting)

    def compute_cost(self, seconds: float, comm: float = 0.0) -> Cost:
        """Seconds with the source of the rates and the spread of a step."""
        return Cost(seconds, self.machine.rates.source, self.spread, comm)

    def pass_line(self, part: LayerPass) -> tuple[CostLine, Cost]:
        """The cost line of a pass, communication of its group included; and a cost with their source."""
        groups = self.pass_groups(part)
        key = (part._replace(module="", ranks=Ranks()), groups)
        if key not in self.found:
            at, line = self.pass_columns(part), CostLine()
            for each, recompute in self.by_placement(part):
                line += layers_line(self.spec, each, self.machine, groups, part.forward, recompute)
            line += stage_constant_line(at, self.machine)
            line += head_line(self.spec, at, self.machine, part.forward) if part.embedding_head else CostLine()
            self.found[key] = line * self.straggler_factor
        return self.found[key], self.compute_cost(0.0)

    def pass_groups(self, part: LayerPass) -> LayerGroups:
        """The groups that communicate within a pass: the same in all layers on its ranks."""
        key = part.ranks, part.split
        if key not in self.groups:
            self.groups[key] = pass_groups(part, self.layout, self.cluster)
        return self.groups[key]

    def weight_gradient_line(self, part: LayerPass) -> CostLine:
        """The cost line of a backward's weight gradients (W)."""
        line = CostLine()
        for number, (at, recompute) in enumerate(self.by_placement(part)):
            layers = sum(count for _, count in recompute)
            line += weight_gradient_line(self.spec, at, self.machine, layers, part.embedding_head and not number)
        return line * self.straggler_factor

    def memory_lines(self, part: LayerPass) -> tuple[CostLine, CostLine]:
        """Cost lines of the kernels that are bound by memory, and of streaming all bytes of the pass at memory
        bandwidth.
        """
        memory_bound = streamed = CostLine()
        for number, (at, recompute) in enumerate(self.by_placement(part)):
            own = part._replace(recompute=recompute, embedding_head=part.embedding_head and not number)
            memory_bound += memory_traffic_line(self.spec, at, own, self.memory_seconds)
            streamed += memory_traffic_line(self.spec, at, own, self.streaming_seconds)
        return memory_bound * self.straggler_factor, streamed * self.straggler_factor

    def memory_seconds(self, work: LayerWork) -> Number:
        """Seconds of the kernels of some work that are bound by memory."""
        return self.machine.memory_seconds(work, self.layout_columns.dtype)

    def streaming_seconds(self, work: LayerWork) -> Number:
        """Seconds in which memory bandwidth moves all bytes of some work, operands of its matrix products included."""
        return self.memory_seconds(work) + self.machine.operand_seconds(work, self.layout_columns.element)

    def by_placement(self, part: LayerPass) -> list[tuple[LayoutColumns, RecomputeCounts]]:
        """The pass by placement of experts: the columns of each, and how many of its layers use which recomputation."""
        at, placements = self.pass_columns(part), part.by_placement or ((self.layout.expert_placement, part.recompute),)
        return [(replace(at, **placement._asdict()), recompute) for placement, recompute in placements]

    @cached_property
    def layout_columns(self) -> LayoutColumns:
        """Columns of the layout for layers that no range of `experts` names."""
        return with_reads(columns_of(self.layout.with_expert_placement(self.layout.expert_placement)), self.reads)

    def pass_columns(self, part: LayerPass) -> LayoutColumns:
        """The layout's columns with the degrees of the pass's group for cp, and without recomputation."""
        at = with_reads(self.layout_columns, part.reads)
        return replace(
            at, cp=part.split.degree, ulysses=part.split.ulysses, full_recompute=0.0, recomputed_parts=frozenset()
        )

    def activation_bytes(
        self,
        layers: Layers,
        ends: bool,
        split: SequenceSplit,
        sizes: Sequence[int],
        reads: CrossReads | None = None,
    ) -> ActivationBytes:
        """Bytes of activations that a micro-batch of `sizes` tokens leaves on each rank of a group, in these layers.
        `reads`: of cross attention; None: the mean of all items.
        """
        reads = self.reads if reads is None else reads
        tokens = sum(sizes)
        if not tokens:
            return ActivationBytes(0.0, 0.0, 0.0)
        typical = sum(size * size for size in sizes) / tokens  # length of the sequence that the mean token is in
        key = (layers, reads, 0.0 if self.machine.accounting.flash else typical)
        if key not in self.tokens:
            self.tokens[key] = self.token_bytes(layers, typical, reads)
        kept, recomputed = (each * tokens / split.degree for each in self.tokens[key])
        head = (
            float(loss_bytes(self.spec, self.layout_columns, self.accounting, tokens / split.degree)) if ends else 0.0
        )
        return ActivationBytes(kept, head, recomputed)

    def token_bytes(self, layers: Layers, seq: float, reads: CrossReads) -> tuple[float, float]:
        """Bytes of activations of one token in layers, from a sequence of `seq` tokens, on one rank of tp without cp:
        kept from forward to backward; and recomputed during one layer's backward.
        """
        kept, peak_recomputed = 0.0, 0.0
        for kind, each, count in self.kinds_of_layers(layers, replace(with_reads(self.layout_columns, reads), seq=seq)):
            own, recomputed_bytes = layer_token_bytes(self.spec, kind, each, self.accounting)
            kept, peak_recomputed = kept + count * float(own), max(peak_recomputed, float(recomputed_bytes))
        return kept, peak_recomputed

    def kinds_of_layers(self, layers: Layers, at: LayoutColumns) -> Iterator[tuple[LayerKind, LayoutColumns, int]]:
        """Yield each kind of layer among some, with what it recomputes and where its experts are, and how many it is
        of.
        """
        counts = Counter(
            (self.spec.layer_kind(layer), self.layout.layer_recompute(layer), placed.expert_placement)
            for placed, placed_layers in self.layout.by_expert_placement(layers)
            for layer in placed_layers
        )
        for (kind, how, placement), count in counts.items():
            full, parts = recompute_columns(how)
            yield kind, replace(at, full_recompute=full, recomputed_parts=parts, **placement._asdict()), count

    def named_bytes(self, layers: Layers) -> float:
        """Bytes of one token in layers of the kinds of activations that the layout names to be offloaded, on one rank
        of tp without cp.
        """
        total = 0.0
        for kind, at, count in self.kinds_of_layers(layers, with_reads(self.layout_columns, self.reads)):
            own = token_bytes(self.spec, kind, at, self.accounting)
            total += count * float(own.least_offloadable if at.full_recompute else own.offloadable)
        return total

    @cached_property
    def layer_lines(self) -> list[CostLine]:
        """Cost lines of one layer on one rank, forward and backward, with the placement and recomputation of most
        layers.
        """
        most, _ = max(self.layout.by_expert_placement(range(self.spec.layers)), key=lambda each: len(each[1]))
        at = replace(
            with_reads(columns_of(most), self.reads),
            cp=1,
            ulysses=1,
            full_recompute=0.0,
            recomputed_parts=frozenset(),
        )
        layers = recompute_counts(self.layout, range(self.spec.layers))
        how = max(layers, key=lambda each: each[1])[0]
        groups = LayerGroups(strided_group(self.layout.tp), strided_group(1), strided_group(1))
        return [layers_line(self.spec, at, self.machine, groups, forward, ((how, 1),)) for forward in (True, False)]

    def replica_exchange(self, task: Task) -> tuple[ReplicaExchange, Cost]:
        """Seconds in which replicas exchange the task's gradients and parameters; and a cost with their source."""
        at, machine = self.layout_columns, self.machine
        parts = replicated_by_task(task, self.spec, self.layout, self.cluster)
        each = [replica_exchange(part, at, machine.network, machine.timing) for part in parts]
        return ReplicaExchange(*(float(sum(numbers)) for numbers in zip(*each, strict=True))), self.compute_cost(0.0)

    def update_cost(self, task: Task, with_step: bool) -> Cost:
        """The optimizer's step over the parameters that a rank updates, and the framework's constant per step if it is
        counted here (`with_step`).
        """
        at, machine = self.layout_columns, self.machine
        parts = replicated_by_task(task, self.spec, self.layout, self.cluster)
        own = updated_parameters(parts, at) * parameter_update_seconds(at, machine)
        own = own + shards_seconds(parts[0], at, machine.timing)
        constant = machine.timing.step_ms * MS if with_step else 0.0
        return self.compute_cost(float(own) * self.straggler_factor + constant)

    def send_cost(self, size_bytes: float, ranks: CommGroup) -> Cost:
        """A point-to-point send, as far as it is exposed."""
        seconds = self.machine.network.send_seconds(size_bytes, ranks)
        seconds = seconds * self.machine.exposed_send_share * self.straggler_factor
        return self.compute_cost(seconds, seconds)


def with_reads(at: LayoutColumns, reads: CrossReads) -> LayoutColumns:
    """The columns with what cross attention reads."""
    return replace(at, cross_reads=reads.per_token, cross_pairs=reads.pairs, readers=reads.readers)
