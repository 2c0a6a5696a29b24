"""Prices of a module without fits: its shape at the rates of its device, with the coefficients of its framework."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from planner.costs.columns import Columns, Number, columns_of, recomputed
from planner.costs.compute.lines import Line
from planner.costs.compute.machine import Machine
from planner.costs.compute.rated import gradient_line, head_line, memory_line, pass_line, pause_line
from planner.costs.compute.work import Work
from planner.costs.cost import Cost
from planner.costs.memory.allowed import accounting_on
from planner.costs.memory.caps import Held
from planner.costs.memory.footprint import layer_kept, token_logit_bytes
from planner.costs.network.network import Group, group
from planner.costs.network.reduced import held_by, places_of
from planner.costs.network.replicas import UPDATE_BYTES, Exchanged, exchanged, shards_seconds, updated
from planner.costs.network.traffic import Places
from planner.costs.part import Mixed, Part, mixed
from planner.plan.model import Layout, Split
from planner.plan.task import Task
from planner.specs.base import Layers, Ranks
from planner.specs.cluster import Cluster
from planner.specs.layers import Module
from planner.units import GB, MS

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class ByRates:
    """Prices a module by rates, on ranks of one device kind."""

    spec: Module
    layout: Layout
    cluster: Cluster
    machine: Machine
    spread: float  # of a step's seconds
    reads: float = 0.0  # tokens that cross attention reads per token of a sequence, in the mean of all items
    found: dict[Key, Line] = field(default_factory=dict)  # cost lines of passes, by all that they depend on
    tokens: dict[Key, Held] = field(default_factory=dict)  # bytes of activations that one token leaves

    @property
    def slower(self) -> float:
        """The straggler factor: how much longer everything takes on many ranks, of which the slowest is critical."""
        return 1.0 + float(self.machine.jitter(len(self.layout.ranks)))

    def worked(self, seconds: float, comm: float = 0.0) -> Cost:
        """Seconds with the source of the rates and the spread of a step."""
        return Cost(seconds, self.machine.rates.source, self.spread, comm)

    def line(self, part: Part) -> tuple[Line, Cost]:
        """The cost line of a pass, communication of its group included; and a cost with their source."""
        groups = places_of(part, self.layout, self.cluster)
        key = (part._replace(module="", ranks=Ranks()), groups)
        if key not in self.found:
            at, line = self.columns(part), Line()
            for each, recompute in self.by_experts(part):
                line += pass_line(self.spec, each, self.machine, groups, part.forward, recompute)
            line += pause_line(at, self.machine)
            line += head_line(self.spec, at, self.machine, part.forward) if part.ends else Line()
            self.found[key] = line * self.slower
        return self.found[key], self.worked(0.0)

    def weights(self, part: Part) -> Line:
        """The cost line of a backward's weight gradients (W)."""
        line = Line()
        for number, (at, recompute) in enumerate(self.by_experts(part)):
            layers = sum(count for _, count in recompute)
            line += gradient_line(self.spec, at, self.machine, layers, part.ends and not number)
        return line * self.slower

    def memory(self, part: Part) -> tuple[Line, Line]:
        """Cost lines of the kernels that are bound by memory, and of streaming all bytes of the pass at memory
        bandwidth.
        """
        memory_bound = streamed = Line()
        for number, (at, recompute) in enumerate(self.by_experts(part)):
            own = part._replace(again=recompute, ends=part.ends and not number)
            memory_bound += memory_line(self.spec, at, own, self.machine.moved)
            streamed += memory_line(self.spec, at, own, self.streamed)
        return memory_bound * self.slower, streamed * self.slower

    def streamed(self, work: Work) -> Number:
        """Seconds in which memory bandwidth moves all bytes of some work, operands of its matrix products included."""
        return self.machine.moved(work) + self.machine.operands(work, self.plain.element)

    def by_experts(self, part: Part) -> list[tuple[Columns, Mixed]]:
        """The pass by placement of experts: the columns of each, and how many of its layers use which recomputation."""
        at, placements = self.columns(part), part.spread or ((self.layout.placement, part.again),)
        return [(replace(at, **placement._asdict()), recompute) for placement, recompute in placements]

    @property
    def plain(self) -> Columns:
        """Columns of the layout for layers that no range of `experts` names."""
        return replace(columns_of(self.layout.placed(self.layout.placement)), reads=self.reads)

    def columns(self, part: Part) -> Columns:
        """The same with the degrees of the pass's group for cp, and without recomputation."""
        at = self.plain
        return replace(at, cp=part.split.degree, ulysses=part.split.ulysses, full=0.0, parts=frozenset())

    def held(self, layers: Layers, ends: bool, split: Split, sizes: Sequence[int]) -> Held:
        """Bytes of activations that a micro-batch of `sizes` tokens leaves on each rank of a group, in these layers."""
        tokens = sum(sizes)
        if not tokens:
            return Held(0.0, 0.0, 0.0)
        typical = sum(size * size for size in sizes) / tokens  # length of the sequence that the mean token is in
        key = (layers, ends, 0.0 if self.machine.accounting.flash else typical)
        if key not in self.tokens:
            self.tokens[key] = self.token_activation_bytes(layers, ends, typical)
        return Held(*(each * tokens / split.degree for each in self.tokens[key]))

    def token_activation_bytes(self, layers: Layers, ends: bool, seq: float) -> Held:
        """Bytes of activations of one token, from a sequence of `seq` tokens, on one rank of tp without cp."""
        at = replace(self.plain, seq=seq)
        accounting = accounting_on(self.machine.device, self.machine.accounting)
        kept, peak_recomputed = 0.0, 0.0
        counts = Counter(
            (self.spec.layer_kind(layer), self.layout.recompute_of(layer), placed.placement)
            for placed, placed_layers in self.layout.by_experts(layers)
            for layer in placed_layers
        )
        for (kind, how, placement), count in counts.items():
            full, parts = recomputed(how)
            each = replace(at, full=full, parts=parts, **placement._asdict())
            own, recomputed_bytes = layer_kept(self.spec, kind, each, accounting)
            kept, peak_recomputed = kept + count * float(own), max(peak_recomputed, float(recomputed_bytes))
        return Held(kept, float(token_logit_bytes(self.spec, at, accounting)) if ends else 0.0, peak_recomputed)

    def layer_lines(self) -> list[Line]:
        """Cost lines of one layer on one rank, forward and backward, with the placement and recomputation of most
        layers.
        """
        most, _ = max(self.layout.by_experts(range(self.spec.layers)), key=lambda each: len(each[1]))
        at = replace(columns_of(most), reads=self.reads, cp=1, ulysses=1, full=0.0, parts=frozenset())
        layers = mixed(self.layout, range(self.spec.layers))
        how = max(layers, key=lambda each: each[1])[0]
        groups = Places(group(self.layout.tp), group(1), group(1))
        return [pass_line(self.spec, at, self.machine, groups, forward, ((how, 1),)) for forward in (True, False)]

    def exchanged(self, task: Task) -> tuple[Exchanged, Cost]:
        """Seconds in which replicas exchange the task's gradients and parameters; and a cost with their source."""
        at, machine = self.plain, self.machine
        parts = held_by(task, self.spec, self.layout, self.cluster)
        each = [exchanged(part, at, machine.network, machine.timing) for part in parts]
        return Exchanged(*(float(sum(numbers)) for numbers in zip(*each, strict=True))), self.worked(0.0)

    def update(self, task: Task) -> Cost:
        """The optimizer's step over the parameters that a rank updates, and the framework's constant per step."""
        at, machine = self.plain, self.machine
        parts = held_by(task, self.spec, self.layout, self.cluster)
        own = updated(parts, at, UPDATE_BYTES / (machine.device.memory_gb_per_s * GB))
        own = own + shards_seconds(parts[0], at, machine.timing)
        return self.worked(float(own) * self.slower + machine.timing.step_ms * MS)

    def sent(self, size_bytes: float, ranks: Group) -> Cost:
        """A point-to-point send, as far as it is exposed."""
        seconds = float(self.machine.network.p2p(size_bytes, ranks)) * self.machine.sent * self.slower
        return self.worked(seconds, seconds)
