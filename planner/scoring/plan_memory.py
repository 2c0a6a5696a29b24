"""Bytes that ranks hold by the memory model, and may hold: the same numbers and the same probability for every verb.

States, parameters gathered by ZeRO-3, workspaces, buffers of communicators and the context are there all the time;
activations from a forward to its backward in the simulated step, outputs of frozen encoders until they are read;
recomputed activations and temporaries of the optimizer's update only while these run. Fragmentation of the allocator
grows with everything that it holds.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.costs import Pricing
from planner.costs.memory import (
    ActivationBytes,
    Footprint,
    allowed_bytes,
    device_accounting,
    oom_chance,
    resident_footprint,
)
from planner.costs.tables import TableLoads, table_loads
from planner.orders import MEMORY_ROUNDING
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Plan
from planner.plan.task import Phase, Task
from planner.plan.tasks.task_table import GroupWork, TaskTable
from planner.scoring.offload_check import task_offloading
from planner.simulate import FurtherBytes, MemoryCurves, OutputBytes, TaskSpans, simulate_memory
from planner.specs.base import Layers, with_fields
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.hardware.profile import Device
from planner.specs.sequence_sharding import SequenceSplit
from planner.units import GIB

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PlanMemory:
    """The memory of one plan's ranks."""

    plan: Plan
    pricing: Pricing
    held: dict[Hashable, list[ActivationBytes]] = field(default_factory=dict)  # by all that they depend on
    static: dict[Hashable, Footprint] = field(default_factory=dict)  # of ranks, by their stages and kind
    alike: dict[tuple[str, Layers], int] = field(default_factory=dict)  # layers → the number of all that keep as much
    kinds_of_layers: dict[Hashable, int] = field(default_factory=dict)  # what these have in common → their number

    def over_step(self, spans: TaskSpans, tasks: TaskTable, updates: bool = True) -> MemoryCurves:
        """Bytes on every rank over a simulated step; or over its passes alone, without what its update holds."""
        further = FurtherBytes(
            self.update_bytes if updates else lambda _: 0.0, self.output_bytes if self.forward_only else None
        )
        kept = self.bytes_of(tasks, ("F",), self.forward_bytes)
        recomputed = self.bytes_of(tasks, ("B", "I"), self.recomputed_bytes)
        return simulate_memory(spans, tasks, kept, self.static_bytes, recomputed, further)

    def in_order(self, tasks: TaskTable, represented: Mapping[int, int] | None = None) -> MemoryCurves:
        """Bytes on every rank over a step whose tasks come one after another; `represented`: as in `one_by_one`. No
        task takes any rank out of the order of all, so where a rank does one pass at a time it holds as much, at its
        peak, in the simulated step: but for outputs of frozen encoders that wait for other ranks, which are ahead of it
        there or behind.
        """
        return self.over_step(self.one_by_one(tasks, represented), tasks)

    def one_by_one(self, tasks: TaskTable, represented: Mapping[int, int] | None = None) -> TaskSpans:
        """The tasks of a step one after another, in their order; `represented`: ranks without tasks of their own → the
        rank that does as much.
        """
        return TaskSpans.one_by_one(len(tasks), self.plan.size, represented or {})

    def bytes_of(
        self, tasks: TaskTable, phases: tuple[Phase, ...], bytes_of: Callable[[Task], float | tuple[float, ...]]
    ) -> Floats:
        """Bytes of activations of each task of some phases, (n,), found once for those that are alike; where there are
        several of each task, (n, several).
        """
        places = tasks.where(lambda kind: kind.phase in phases)
        copied = np.array([bool(work.offload) for work in tasks.works], dtype=np.bool_)[tasks.work[places]]
        offloaded = {tasks.kinds[kind].module for kind in np.unique(tasks.kind[places][copied]).tolist()}
        first, like = tasks.alike(places, lambda kind: self.kind_key(kind, offloaded), self.work_key)
        values = np.array([bytes_of(tasks.task(place)) for place in first])
        found = np.zeros((len(tasks), *values.shape[1:]))
        found[places] = values[like]
        return found

    def kind_key(self, kind: Task, offloaded: Collection[str]) -> Hashable:
        """All of a kind of pass that its activations depend on but items; `offloaded`: modules that offload any."""
        where = kind.degree, kind.ring, self.pricing.device_kinds(kind.ranks), self.kind(kind.ranks[0])
        copied = task_offloading(self.plan, self.pricing, kind) if kind.module in offloaded else None
        return kind.module, self.kept_by(kind.module, kind.layers), where, copied

    def work_key(self, work: GroupWork) -> Hashable:
        """All of a group's work in a micro-batch that its activations depend on."""
        return work.sizes, work.parts, work.offload, work.items if self.pricing.reads else ()

    def forward_bytes(self, task: Task) -> float:
        """Bytes of activations that a forward leaves on each of its ranks, without offloaded ones."""
        each = self.activation_bytes(task)
        if task.offload:
            rank = task_offloading(self.plan, self.pricing, task)
            kept = sum(
                size * rank.held_layer_bytes(ratio) for size, ratio in zip(task.sizes, task.offload, strict=True)
            )
            fullest = task.fullest_share()
            layers = kept * (fullest.tokens / task.tokens) / fullest.degree
            return (layers + max(held.head for held in each)) * self.fragmentation_factor(task)
        return max(held.layers + held.head for held in each) * self.fragmentation_factor(task)

    def hosts_over_step(self, spans: TaskSpans, tasks: TaskTable) -> MemoryCurves:
        """Bytes of each rank in its host's memory over a simulated step: offloaded activations and optimizer states."""
        offloaded = self.bytes_of(tasks, ("F",), self.offloaded_bytes)
        return simulate_memory(spans, tasks, offloaded, self.offloaded_states)

    def offloaded_bytes(self, task: Task) -> float:
        """Bytes of activations that a forward offloads from each of its ranks."""
        if not task.offload:
            return 0.0
        rank, fullest = task_offloading(self.plan, self.pricing, task), task.fullest_share()
        each = (
            size * (rank.held_layer_bytes(0.0) - rank.held_layer_bytes(ratio))
            for size, ratio in zip(task.sizes, task.offload, strict=True)
        )
        return sum(each) * (fullest.tokens / task.tokens) / fullest.degree

    def offloaded_states(self, rank: int) -> float:
        """Bytes of the optimizer's moments that a rank has in its host's memory."""
        kind, found = self.kind(rank), 0.0
        for name, stages in self.stage_of.items():
            layout = self.plan.layouts[name]
            if layout.optimizer_offload and rank in stages:
                on_device = with_fields(layout, optimizer_offload=0.0)
                model, accounting = self.plan.uses.models[name], self.accountings[kind]
                whole = resident_footprint(model, on_device, accounting, stages[rank])
                found += float(whole.optimizer - self.footprints[name][stages[rank]][kind].optimizer)
        return found

    def recomputed_bytes(self, task: Task) -> float:
        """Bytes that a backward holds on each of its ranks beside the forwards' activations, while it recomputes a
        layer.
        """
        return max(held.recompute_extra for held in self.activation_bytes(task)) * self.fragmentation_factor(task)

    @cached_property
    def forward_only(self) -> frozenset[str]:
        """Encoders without a backward, which keep nothing but their outputs."""
        flows, feeding = self.pricing.flows, {edge.source for edge in self.plan.edges}
        return frozenset(name for name in feeding if name in flows and not flows[name].has_backward())

    def output_bytes(self, send: Task) -> OutputBytes:
        """Bytes of outputs of a frozen encoder in a send, in equal parts on the ranks of both ends; of other modules
        they are few beside the activations that are kept with them.
        """
        if send.module not in self.forward_only:
            return OutputBytes(0.0, 0.0)
        whole = self.pricing.sent_bytes(send) * self.fragmentation_factor(send)
        return OutputBytes(whole / len(send.ranks), whole / len(send.peers))

    def activation_bytes(self, task: Task) -> list[ActivationBytes]:
        """Activations by part, on each kind of a task's ranks. Layers without a backward keep nothing: one at a time
        has what its forward needs.
        """
        kinds, reads = self.pricing.device_kinds(task.ranks), self.pricing.cross_reads(task)
        key = task.module, self.kept_by(task.module, task.layers), task.degree, task.ring, task.lengths, kinds, reads
        if key not in self.held:
            self.held[key] = self.new_activation_bytes(task)
        return self.held[key]

    def kept_by(self, module: str, layers: Layers) -> int:
        """A number for all of a stage's layers that their activations depend on, which most stages of a pipeline have
        in common.
        """
        if (module, layers) not in self.alike:
            spec, layout = self.plan.uses.models[module], self.plan.layouts[module]
            each = [(spec.layer_kind(layer), layout.layer_recompute(layer)) for layer in layers]
            placed = [layout.at_layer(layer).expert_placement for layer in layers] if layout.experts else ()
            shared = module, *each, *placed, layers[-1] == spec.layers - 1
            self.alike[module, layers] = self.kinds_of_layers.setdefault(shared, len(self.kinds_of_layers))
        return self.alike[module, layers]

    def new_activation_bytes(self, task: Task) -> list[ActivationBytes]:
        """Compute what `activation_bytes` keeps."""
        task = task.fullest_share()
        layers = task.layers if self.pricing.through_layers(task.module) else Layers(task.layers[:1])
        ends = task.layers[-1] == self.plan.uses.models[task.module].layers - 1
        each = (self.pricing.module_pricing(task.module, kind) for kind in self.pricing.device_kinds(task.ranks))
        reads = self.pricing.cross_reads(task)
        return [basis.activation_bytes(layers, ends, task.split, task.lengths, reads) for basis in each]

    def token_bytes(self, module: str) -> float:
        """Bytes that a token of a module takes of a rank that holds it alone, on the first rank."""
        basis = self.pricing.module_pricing(module, self.kind(0))
        held = basis.activation_bytes(Layers(range(self.plan.uses.models[module].layers)), True, SequenceSplit(), (1,))
        return held.peak * (1.0 + self.accounting(0).fragmentation)

    def fragmentation_factor(self, task: Task) -> float:
        """Factor for what the allocator reserves and cannot use."""
        return 1.0 + self.accounting(task.ranks[0]).fragmentation

    def static_bytes(self, rank: int) -> float:
        """Bytes that a rank holds all the time, whatever it works on."""
        parts, factor = self.static_footprint(rank), 1.0 + self.accounting(rank).fragmentation
        return float(parts.besides_activations * factor + parts.outside_allocator)

    def update_bytes(self, rank: int) -> float:
        """Bytes beside these during the optimizer's update, when nothing is gathered."""
        parts = self.static_footprint(rank)
        return float(parts.update - parts.gathered) * (1.0 + self.accounting(rank).fragmentation)

    def static_footprint(self, rank: int) -> Footprint:
        """Bytes by part of all modules on a rank, without activations; found once for all with the same stages."""
        key = self.kind(rank), self.table_bytes(rank), *(stages.get(rank) for stages in self.stage_of.values())
        if key not in self.static:
            self.static[key] = self.new_static_footprint(rank)
        return self.static[key]

    def new_static_footprint(self, rank: int) -> Footprint:
        """Compute what `static_footprint` keeps."""
        found = None
        for module, stages in self.stage_of.items():
            if rank in stages:
                mine = self.footprints[module][stages[rank]][self.kind(rank)]
                found = mine if found is None else found.sharing_ranks(mine)
        found = found or EMPTY_FOOTPRINT
        return replace(found, weights=found.weights + self.table_bytes(rank))

    @cached_property
    def table_loads(self) -> TableLoads | None:
        """What embedding tables take of ranks."""
        return table_loads(self.plan)

    def table_bytes(self, rank: int) -> float:
        """Bytes of embedding tables, their optimizer's states and buffers on a rank."""
        loads = self.table_loads
        return float(loads.held[loads.position(rank)]) if loads else 0.0

    @cached_property
    def stage_of(self) -> dict[str, dict[int, int]]:
        """Module → rank → pipeline stage."""
        return {
            name: {rank: stage for stage in range(layout.pp) for rank in stage_ranks(layout, stage)}
            for name, layout in self.plan.layouts.items()
        }

    @cached_property
    def footprints(self) -> dict[str, list[dict[str, Footprint]]]:
        """Bytes without activations, by module, stage and kind of rank."""
        known, found = self.pricing.shared.footprints, dict[str, list[dict[str, Footprint]]]()
        for name, layout in self.plan.layouts.items():
            key, stages = (name, str(layout), self.kinds), range(layout.pp)
            if key not in known:
                known[key] = [{kind: self.stage_footprint(name, at, kind) for kind in self.kinds} for at in stages]
            found[name] = known[key]
        return found

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of device: what holds for one rank of a kind holds for all, and there may be a hundred thousand."""
        return tuple(dict.fromkeys(self.kind(rank) for rank in range(self.plan.size)))

    @cached_property
    def accountings(self) -> dict[str, MemoryCoefficients]:
        """Memory coefficients by kind of device."""
        uses = self.plan.uses
        return {kind: device_accounting(uses.devices[kind], uses.prices.accounting) for kind in self.kinds}

    @cached_property
    def allowed(self) -> dict[str, float]:
        """Bytes that a rank may hold in total, by kind of device."""
        return {kind: allowed_bytes_on(self.plan, kind) for kind in self.kinds}

    def stage_footprint(self, module: str, stage: int, kind: str) -> Footprint:
        """Bytes of a stage of a module on a rank without activations."""
        model, layout = self.plan.uses.models[module], self.plan.layouts[module]
        return resident_footprint(model, layout, self.accountings[kind], stage)

    def kind(self, rank: int) -> str:
        return device_of_rank(self.plan.uses.cluster, rank)

    def device(self, rank: int) -> Device:
        return self.plan.uses.devices[self.kind(rank)]

    def accounting(self, rank: int) -> MemoryCoefficients:
        return self.accountings[self.kind(rank)]

    def allowed_bytes(self, rank: int) -> float:
        """Bytes that a rank may hold in total."""
        return self.allowed[self.kind(rank)]

    def oom_chance(self, rank: int, peak: float) -> float:
        """Probability that a rank runs out of memory whose predicted peak is this many bytes."""
        device, states = self.device(rank).memory_gib * GIB, float(self.static_footprint(rank).states)
        return float(oom_chance(peak, device, self.plan.uses.prices.accounting.spread, states))

    def peak_footprint(self, rank: int, peak: float, tasks: Sequence[Task]) -> Footprint:
        """Bytes by part that a rank holds in a step of these tasks; `peak`: the most that it holds while passes run."""
        parts, share = self.static_footprint(rank), 1.0 + self.accounting(rank).fragmentation
        working = max(0.0, (peak - float(parts.outside_allocator)) / share - float(parts.besides_activations))
        logits = (
            held.head
            for task in tasks
            if task.phase == "F" and rank in task.ranks
            for held in self.activation_bytes(task)
        )
        own = min(max(logits, default=0.0), working)
        found = replace(parts, activations=working - own, logits=own)
        return found.fragmented(share - 1.0)


EMPTY_FOOTPRINT = Footprint(*(0.0 for _ in fields(Footprint)))


def allowed_bytes_on(plan: Plan, kind: str) -> float:
    """Bytes that a rank of a kind may hold in total."""
    return allowed_bytes(plan.uses.devices[kind], plan.uses.limits, plan.uses.prices.accounting)


def exceeds_memory(held: float, cap: float) -> bool:
    """Whether bytes exceed the capacity beyond rounding: an order that fits by its own sum also fits when simulated."""
    return held > cap * (1 + MEMORY_ROUNDING)
