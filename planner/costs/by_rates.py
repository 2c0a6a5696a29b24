"""Prices of a module that nobody measured: what its shape takes at its device's rates, under its framework's traits."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from planner.costs.columns import Columns, columns_of, recomputed
from planner.costs.compute.lines import Line
from planner.costs.compute.machine import Machine
from planner.costs.compute.rated import gradient_line, head_line, pass_line, pause_line
from planner.costs.cost import Cost
from planner.costs.memory.allowed import accounting_on
from planner.costs.memory.caps import Held
from planner.costs.memory.footprint import layer_kept, token_logit_bytes
from planner.costs.network.network import Group, group
from planner.costs.network.reduced import held_by, places_of
from planner.costs.network.replicas import UPDATE_BYTES, Exchanged, exchanged, shards_seconds, updated
from planner.costs.network.traffic import Places
from planner.costs.part import Part, mixed
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
            at = self.columns(part)
            line = pass_line(self.spec, at, self.machine, there, part.forward, part.again) + pause_line(
                at, self.machine
            )
            line += head_line(self.spec, at, self.machine, part.forward) if part.ends else Line()
            self.found[key] = line * self.slower
        return self.found[key], self.worked(0.0)

    def weights(self, part: Part) -> Line:
        """Of a backward, what makes gradients of weights."""
        return gradient_line(self.spec, self.columns(part), self.machine, part.layers, part.ends) * self.slower

    def columns(self, part: Part) -> Columns:
        """The layout as a group has it that shares out its items so."""
        at = columns_of(self.layout)
        return replace(at, reads=self.reads, cp=part.split.degree, ulysses=part.split.ulysses, full=0.0, parts=frozenset())

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
        at = replace(columns_of(self.layout), seq=seq, reads=self.reads)
        accounting = accounting_on(self.machine.device, self.machine.accounting)
        kept, remade = 0.0, 0.0
        alike = Counter((self.spec.layer_kind(layer), self.layout.recompute_of(layer)) for layer in layers)
        for (kind, how), count in alike.items():
            full, parts = recomputed(how)
            own, again = layer_kept(self.spec, kind, replace(at, full=full, parts=parts), accounting)
            kept, remade = kept + count * float(own), max(remade, float(again))
        return Held(kept, float(token_logit_bytes(self.spec, at, accounting)) if ends else 0.0, remade)

    def layer_lines(self) -> list[Line]:
        """Of one layer on a rank alone, forward and backward, as most layers are."""
        at = replace(columns_of(self.layout), reads=self.reads, cp=1, ulysses=1, full=0.0, parts=frozenset())
        layers = mixed(self.layout, range(self.spec.layers))
        how = max(layers, key=lambda each: each[1])[0]
        there = Places(group(self.layout.tp), group(1), group(1))
        return [pass_line(self.spec, at, self.machine, there, forward, ((how, 1),)) for forward in (True, False)]

    def exchanged(self, task: Task) -> tuple[Exchanged, Cost]:
        """What replicas owe each other of the task's parameters, and on whose word."""
        at, machine = columns_of(self.layout), self.machine
        parts = held_by(task, self.spec, self.layout, self.cluster)
        each = [exchanged(part, at, machine.network, machine.timing) for part in parts]
        return Exchanged(*(float(sum(numbers)) for numbers in zip(*each, strict=True))), self.worked(0.0)

    def update(self, task: Task) -> Cost:
        """The optimizer's pass over the parameters that a rank updates, and what the framework does once a step."""
        at, machine = columns_of(self.layout), self.machine
        parts = held_by(task, self.spec, self.layout, self.cluster)
        own = updated(parts, at, UPDATE_BYTES / (machine.device.memory_gb_per_s * GB))
        own = own + shards_seconds(parts[0], at, machine.timing)
        return self.worked(float(own) * self.slower + machine.timing.step_ms * MS)

    def sent(self, size_bytes: float, ranks: Group) -> Cost:
        """From rank to rank, as far as it is waited for."""
        seconds = float(self.machine.network.p2p(size_bytes, ranks)) * self.machine.sent * self.slower
        return self.worked(seconds, seconds)
