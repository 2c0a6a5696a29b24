"""Prices of a module that nobody measured: what its shape takes at its device's rates, under its framework's traits."""

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
    """On ranks of one kind."""

    spec: Module
    layout: Layout
    cluster: Cluster
    machine: Machine
    spread: float  # of a step's seconds
    reads: float = 0.0  # tokens that cross attention reads, for each token of a sequence, in the mean of all items
    found: dict[Key, Line] = field(default_factory=dict)  # lines of parts whose ranks lie alike
    tokens: dict[Key, Held] = field(default_factory=dict)  # what one token leaves

    @property
    def slower(self) -> float:
        """What everything takes of many ranks, of which the slowest sets the pace."""
        return 1.0 + float(self.machine.jitter(len(self.layout.ranks)))

    def worked(self, seconds: float, comm: float = 0.0) -> Cost:
        return Cost(seconds, self.machine.rates.source, self.spread, comm)

    def line(self, part: Part) -> tuple[Line, Cost]:
        """Compute, and what a group has to exchange for it."""
        there = places_of(part, self.layout, self.cluster)
        key = (part._replace(module="", ranks=Ranks()), there)
        if key not in self.found:
            at, line = self.columns(part), Line()
            for each, again in self.by_experts(part):
                line += pass_line(self.spec, each, self.machine, there, part.forward, again)
            line += pause_line(at, self.machine)
            line += head_line(self.spec, at, self.machine, part.forward) if part.ends else Line()
            self.found[key] = line * self.slower
        return self.found[key], self.worked(0.0)

    def weights(self, part: Part) -> Line:
        """Of a backward, what makes gradients of weights."""
        line = Line()
        for number, (at, again) in enumerate(self.by_experts(part)):
            layers = sum(count for _, count in again)
            line += gradient_line(self.spec, at, self.machine, layers, part.ends and not number)
        return line * self.slower

    def memory(self, part: Part) -> tuple[Line, Line]:
        """What kernels take that are bound by memory; and what all bytes would take, at the memory's bandwidth."""
        moved = streamed = Line()
        for number, (at, again) in enumerate(self.by_experts(part)):
            own = part._replace(again=again, ends=part.ends and not number)
            moved += memory_line(self.spec, at, own, self.machine.moved)
            streamed += memory_line(self.spec, at, own, self.streamed)
        return moved * self.slower, streamed * self.slower

    def streamed(self, work: Work) -> Number:
        return self.machine.moved(work) + self.machine.operands(work, self.plain.element)

    def by_experts(self, part: Part) -> list[tuple[Columns, Mixed]]:
        """A pass by how experts lie: with columns for each way what its layers make again."""
        at, spread = self.columns(part), part.spread or ((self.layout.placement, part.again),)
        return [(replace(at, **placement._asdict()), again) for placement, again in spread]

    @property
    def plain(self) -> Columns:
        """The layout as it is for layers that no range of `experts` names."""
        return replace(columns_of(self.layout.placed(self.layout.placement)), reads=self.reads)

    def columns(self, part: Part) -> Columns:
        """The same as a group has it that shares out its items so."""
        at = self.plain
        return replace(at, cp=part.split.degree, ulysses=part.split.ulysses, full=0.0, parts=frozenset())

    def held(self, layers: Layers, ends: bool, split: Split, sizes: Sequence[int]) -> Held:
        """Bytes of a micro-batch's items on each rank of a group, in these layers."""
        tokens = sum(sizes)
        if not tokens:
            return Held(0.0, 0.0, 0.0)
        typical = sum(size * size for size in sizes) / tokens  # of the sequence that the mean token is in
        key = (layers, ends, 0.0 if self.machine.accounting.flash else typical)
        if key not in self.tokens:
            self.tokens[key] = self.token_held(layers, ends, typical)
        return Held(*(each * tokens / split.degree for each in self.tokens[key]))

    def token_held(self, layers: Layers, ends: bool, seq: float) -> Held:
        """Of one token of a sequence, on a rank of tp alone."""
        at = replace(self.plain, seq=seq)
        accounting = accounting_on(self.machine.device, self.machine.accounting)
        kept, remade = 0.0, 0.0
        alike = Counter(
            (self.spec.layer_kind(layer), self.layout.recompute_of(layer), one.placement)
            for one, own in self.layout.by_experts(layers)
            for layer in own
        )
        for (kind, how, placement), count in alike.items():
            full, parts = recomputed(how)
            each = replace(at, full=full, parts=parts, **placement._asdict())
            own, again = layer_kept(self.spec, kind, each, accounting)
            kept, remade = kept + count * float(own), max(remade, float(again))
        return Held(kept, float(token_logit_bytes(self.spec, at, accounting)) if ends else 0.0, remade)

    def layer_lines(self) -> list[Line]:
        """Of one layer on a rank alone, forward and backward, as most layers are."""
        most, _ = max(self.layout.by_experts(range(self.spec.layers)), key=lambda each: len(each[1]))
        at = replace(columns_of(most), reads=self.reads, cp=1, ulysses=1, full=0.0, parts=frozenset())
        layers = mixed(self.layout, range(self.spec.layers))
        how = max(layers, key=lambda each: each[1])[0]
        there = Places(group(self.layout.tp), group(1), group(1))
        return [pass_line(self.spec, at, self.machine, there, forward, ((how, 1),)) for forward in (True, False)]

    def exchanged(self, task: Task) -> tuple[Exchanged, Cost]:
        """What replicas owe each other of the task's parameters, and on whose word."""
        at, machine = self.plain, self.machine
        parts = held_by(task, self.spec, self.layout, self.cluster)
        each = [exchanged(part, at, machine.network, machine.timing) for part in parts]
        return Exchanged(*(float(sum(numbers)) for numbers in zip(*each, strict=True))), self.worked(0.0)

    def update(self, task: Task) -> Cost:
        """The optimizer's pass over the parameters that a rank updates, and what the framework does once a step."""
        at, machine = self.plain, self.machine
        parts = held_by(task, self.spec, self.layout, self.cluster)
        own = updated(parts, at, UPDATE_BYTES / (machine.device.memory_gb_per_s * GB))
        own = own + shards_seconds(parts[0], at, machine.timing)
        return self.worked(float(own) * self.slower + machine.timing.step_ms * MS)

    def sent(self, size_bytes: float, ranks: Group) -> Cost:
        """From rank to rank, as far as it is waited for."""
        seconds = float(self.machine.network.p2p(size_bytes, ranks)) * self.machine.sent * self.slower
        return self.worked(seconds, seconds)
