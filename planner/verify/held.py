"""What ranks hold by the memory model, and may hold: the same bytes and the same chance for every verb.

States, what ZeRO-3 gathers, workspaces, buffers of communicators and the context are there all the time; activations
from a forward to its backward, as the simulated step has it; what a backward makes again, and what the optimizer's
update makes for itself, for as long as these last. What the allocator cannot use grows with all that it holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

from planner.costs.memory.allowed import accounting_on, allowed_bytes
from planner.costs.memory.caps import Held
from planner.costs.memory.footprint import Footprint, probability
from planner.costs.memory.resting import resting
from planner.costs.pricing import Pricing
from planner.orders.timing import ROUNDING
from planner.plan.mesh import stage_ranks
from planner.plan.model import Plan
from planner.plan.task import Task
from planner.simulate import Memory, Timeline, memory_use
from planner.specs.accounting import Accounting
from planner.specs.cluster import kind_of
from planner.specs.profile import Device
from planner.units import GIB
from planner.verify.offloaded import offloading_of


@dataclass(frozen=True)
class Holding:
    """Of one plan."""

    plan: Plan
    pricing: Pricing

    def over(self, timeline: Timeline, tasks: Sequence[Task]) -> Memory:
        """Bytes on every rank over a step."""
        return memory_use(timeline, tasks, self.forward, self.always, self.besides, self.update)

    def forward(self, task: Task) -> float:
        """Bytes that a forward leaves on each of its ranks; what is offloaded has left it."""
        if task.offload:
            rank = offloading_of(self.plan, self.pricing, task)
            kept = sum(size * rank.held_bytes(ratio) for size, ratio in zip(task.sizes, task.offload, strict=True))
            return kept / task.degree * self.share(task)
        return max(held.layers + held.ends for held in self.held(task)) * self.share(task)

    def besides(self, task: Task) -> float:
        """Bytes that a backward holds on each of its ranks beside what forwards left, while it makes a layer again."""
        return max(held.besides for held in self.held(task)) * self.share(task)

    def held(self, task: Task) -> list[Held]:
        """On each kind of a task's ranks."""
        ends = task.layers[-1] == self.plan.uses.models[task.module].layers - 1
        each = (self.pricing.basis(task.module, kind) for kind in self.pricing.kinds(task.ranks))
        return [basis.held(task.layers, ends, task.split, task.lengths) for basis in each]

    def share(self, task: Task) -> float:
        """With what the allocator reserves and cannot use."""
        return 1.0 + self.accounting(task.ranks[0]).fragmentation

    def always(self, rank: int) -> float:
        """Bytes that a rank holds whatever it works on."""
        parts = self.fixed(rank)
        return float(parts.beside_passes * (1.0 + self.accounting(rank).fragmentation) + parts.outside)

    def update(self, rank: int) -> float:
        """Bytes beside these while the optimizer works, when nothing is gathered."""
        parts = self.fixed(rank)
        return float(parts.update - parts.gathered) * (1.0 + self.accounting(rank).fragmentation)

    def fixed(self, rank: int) -> Footprint:
        """What all modules have on a rank, without activations."""
        found = None
        for module, stages in self.stage_of.items():
            if rank in stages:
                mine = self.footprints[module][stages[rank]][self.kind(rank)]
                found = mine if found is None else together(found, mine)
        return found or NOTHING

    @cached_property
    def stage_of(self) -> dict[str, dict[int, int]]:
        """By module: rank → its pipeline stage."""
        return {
            name: {rank: stage for stage in range(layout.pp) for rank in stage_ranks(layout, stage)}
            for name, layout in self.plan.layouts.items()
        }

    @cached_property
    def footprints(self) -> dict[str, list[dict[str, Footprint]]]:
        """By module, stage and kind of rank, of a rank that works on nothing."""
        kinds = dict.fromkeys(kind_of(self.plan.uses.cluster, rank) for rank in range(self.plan.size))
        return {
            name: [{kind: self.empty(name, stage, kind) for kind in kinds} for stage in range(layout.pp)]
            for name, layout in self.plan.layouts.items()
        }

    def empty(self, module: str, stage: int, kind: str) -> Footprint:
        accounting = accounting_on(self.plan.uses.devices[kind], self.plan.uses.prices.accounting)
        return resting(self.plan.uses.models[module], self.plan.layouts[module], accounting, stage)

    def kind(self, rank: int) -> str:
        return kind_of(self.plan.uses.cluster, rank)

    def device(self, rank: int) -> Device:
        return self.plan.uses.devices[self.kind(rank)]

    def accounting(self, rank: int) -> Accounting:
        return accounting_on(self.device(rank), self.plan.uses.prices.accounting)

    def allowed(self, rank: int) -> float:
        """Bytes that a rank may hold, all told."""
        return allowed_on(self.plan, self.kind(rank))

    def chance(self, rank: int, peak: float) -> float:
        """That a rank runs out of memory which is said to hold so much."""
        return float(probability(peak, self.device(rank).memory_gib * GIB, self.plan.uses.prices.accounting.spread))

    def taken(self, rank: int, peak: float, tasks: Sequence[Task]) -> Footprint:
        """The parts of what a rank holds at its fullest, in a step of these tasks."""
        parts, share = self.fixed(rank), 1.0 + self.accounting(rank).fragmentation
        working = max(0.0, (peak - float(parts.outside)) / share - float(parts.beside_passes))
        logits = (held.ends for task in tasks if task.phase == "F" and rank in task.ranks for held in self.held(task))
        own = min(max(logits, default=0.0), working)
        found = replace(parts, activations=working - own, logits=own)
        return found.fragmented(share - 1.0)


NOTHING = Footprint(*(0.0 for _ in fields(Footprint)))


def together(one: Footprint, other: Footprint) -> Footprint:
    """Of two modules on a rank; its process is one."""
    once = ("workspace", "buffers", "context")
    parts = {f.name: getattr(one, f.name) + (0.0 if f.name in once else getattr(other, f.name)) for f in fields(one)}
    return Footprint(**parts)


def allowed_on(plan: Plan, kind: str) -> float:
    """Bytes that a rank of a kind may hold, all told."""
    return allowed_bytes(plan.uses.devices[kind], plan.uses.limits, plan.uses.prices.accounting)


def exceeds(held: float, cap: float) -> bool:
    """Beyond how sums are rounded: an order that fits by its own sum fits by the simulator's."""
    return held > cap * (1 + ROUNDING)
