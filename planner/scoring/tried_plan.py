"""What a search asks of each plan that it tries: whether it fits, and how long its step takes.

A score says the same, and has a timeline, memory over time and a bound besides, which only the plan that is chosen
needs. For plans of one step in which a rank does one pass at a time: memory in the order of its tasks is that of the
simulated step then, so that what does not fit is not simulated; and what holds too much by its passes alone, or takes
too long by them, has no tasks made (`least_peaks`, `least_seconds`).

Of a module that reads others, the order of slots on a pipeline rank says what its forwards keep until their backwards.
Encoders whose backwards come last keep all their passes to the end of the step; those that the first micro-batch reads
keep theirs while the others pass through the pipeline, too. Others keep each pass from the slot that reads it to the
one from which its gradients come. Of encoders that a step places tasks of nothing counts.

A rank does one pass at a time, so that a step takes no less than all passes of any rank. Of a pipeline those of its
first rank, of its last, and of one with most layers are looked at, of which one has most to do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.costs import Pricing, SharedPrices, pricing_of
from planner.plan.plan_file import Plan
from planner.plan.schedules import Slot
from planner.plan.schedules.zero_bubble import KEPT_FOR_WEIGHTS
from planner.plan.task import Phase, Task
from planner.plan.tasks.expand import expand
from planner.plan.tasks.module_work import GroupWork, ModuleWork, module_work, pass_task
from planner.scoring.host_memory import require_host_memory
from planner.scoring.offload_check import hidden_offload, require_hidden_offload
from planner.scoring.plan_memory import PlanMemory, exceeds_memory
from planner.scoring.score import require_peaks
from planner.simulate import MemoryCurves, simulated_end
from planner.specs.base import Ranks

PHASES: tuple[Phase, ...] = ("F", "B")
Floats = NDArray[np.float64]
FREED = {"B": 1.0, "I": 1.0 - KEPT_FOR_WEIGHTS, "W": KEPT_FOR_WEIGHTS}  # by a pass, of what its forward kept


@dataclass(frozen=True)
class TriedPlan:
    """A plan of one step, expanded and priced once; `shared`: prices, with other plans of its job."""

    plan: Plan
    shared: SharedPrices = field(default_factory=SharedPrices)

    @cached_property
    def tasks(self) -> Sequence[Task]:
        """The tasks of the step. Raises InputError where they wait for each other."""
        return expand(self.plan)

    @cached_property
    def pricing(self) -> Pricing:
        """The prices of the tasks."""
        return pricing_of(self.plan, self.shared)

    @cached_property
    def plan_memory(self) -> PlanMemory:
        """The memory of its ranks."""
        return PlanMemory(self.plan, self.pricing)

    @cached_property
    def memory(self) -> MemoryCurves:
        """Bytes on every rank, its tasks one after another."""
        return self.plan_memory.in_order(self.tasks)

    @cached_property
    def least_peaks(self) -> list[float]:
        """Bytes on every rank at its peak at least, without its tasks."""
        return least_peaks(self.plan, self.plan_memory)

    @cached_property
    def peaks(self) -> Sequence[float]:
        """Bytes on every rank at its peak; where the least that these may be is too much, that."""
        least = self.least_peaks
        beyond = (exceeds_memory(peak, self.plan_memory.allowed_bytes(rank)) for rank, peak in enumerate(least))
        return least if any(beyond) else self.memory.peaks

    @property
    def memory_share(self) -> float:
        """The greatest share of a rank's allowed memory."""
        return self.share_of(self.memory.peaks)

    @property
    def known_share(self) -> float:
        """The greatest share of a rank's allowed memory; where the least that it may be is too much, that."""
        return self.share_of(self.peaks)

    @property
    def least_share(self) -> float:
        """The greatest share of a rank's allowed memory at least, without its tasks."""
        return self.share_of(self.least_peaks)

    def share_of(self, peaks: Sequence[float]) -> float:
        """The greatest of these bytes of each rank over what it may hold."""
        return max(peak / self.plan_memory.allowed_bytes(rank) for rank, peak in enumerate(peaks))

    def require_memory(self) -> None:
        """Raise Infeasible when a rank holds more than its device allows, or a host more than it has."""
        if self.plan.uses.limits.tokens_per_rank is None:
            require_peaks(self.plan, self.plan_memory, self.peaks)
        require_host_memory(self.plan_memory, self.plan_memory.one_by_one(self.tasks), self.tasks)

    @cached_property
    def least_seconds(self) -> float:
        """Seconds that the step takes at least, without its tasks."""
        return least_seconds(self.plan, self.pricing)

    def hidden_offload(self, module: str) -> float:
        """The largest share of the activations of every item of a module whose copies hide."""
        return hidden_offload(self.plan, self.pricing, module)

    def step_seconds(self) -> float:
        """The seconds of the step, as its score has them. Raises InputError for offload that would not hide."""
        require_hidden_offload(self.plan, 0, self.pricing, self.tasks)
        return simulated_end(self.tasks, self.pricing.with_concurrency(self.tasks))


def least_seconds(plan: Plan, pricing: Pricing) -> float:
    """The least seconds of a plan's one step by its passes alone, whose groups have their devices to themselves."""
    (step,), busy = plan.steps, np.zeros(plan.size)
    for name in plan.layouts:
        work = module_work(plan, step, name)
        for stage in looked_at(work):
            for phase in PHASES if work.has_backward(stage) else PHASES[:1]:
                for c in (c for micro_batch in work.micro_batches for c in micro_batch if c.items):
                    task = pass_task(work, stage, phase, c)
                    busy[[*task.ranks]] += pricing.price(task).value
    return float(busy.max())


def looked_at(work: ModuleWork) -> list[int]:
    """The stages of the pipeline ranks that are looked at."""
    last = work.pipeline_ranks - 1
    fullest = max(range(work.pipeline_ranks), key=lambda rank: len(work.rank_layers(rank)))
    return [stage for rank in sorted({0, fullest, last}) for stage in range(rank, len(work.stages), last + 1)]


@dataclass(frozen=True, slots=True)
class KeptByForwards:
    """What forwards keep on each of their ranks, found once for all stages that keep as much."""

    holding: PlanMemory
    known: dict[tuple[int, int, tuple[str, ...]], tuple[float, float]] = field(default_factory=dict)

    def of(self, work: ModuleWork, stage: int, c: GroupWork) -> tuple[float, float]:
        """Bytes that the forward of a group's work on a stage keeps until its backward, and that this one adds."""
        kinds = self.holding.pricing.device_kinds(work.stage_ranks(stage, c.ranks))
        key = self.holding.kept_by(work.module, work.stages[stage]), id(c), kinds
        if key not in self.known:
            task = pass_task(work, stage, "F", c)
            self.known[key] = self.holding.forward_bytes(task), self.holding.recomputed_bytes(task)
        return self.known[key]


def least_peaks(plan: Plan, holding: PlanMemory) -> list[float]:
    """Bytes that each rank holds at least at its peak, of a plan of one step, by its passes alone."""
    (step,) = plan.steps
    feeding = {edge.source for edge in plan.edges}
    static = np.array([holding.static_bytes(rank) for rank in range(plan.size)])
    passing, early, kept, waiting = np.zeros((4, plan.size))
    works = {name: module_work(plan, step, name) for name in plan.layouts}
    forwards = KeptByForwards(holding)
    for name, work in works.items():
        if name not in feeding:
            for pipeline_rank, slots in enumerate(work.slots(step.order_of(name))):
                np.maximum(passing, pipeline_peaks(work, pipeline_rank, slots, forwards), out=passing)
        elif step.placements:
            continue
        elif work.layout.backward == "at_once":
            np.maximum(waiting, waiting_peaks(plan, works, name, forwards), out=waiting)
        else:
            first = read_by_first_micro_batch(plan, works, name)
            for c in (c for micro_batch in work.micro_batches for c in micro_batch):
                own = kept_bytes(work, c, forwards)
                kept += own
                early += own * any(item in first for item in c.items)
    found: list[float] = (static + np.maximum(np.maximum(kept, waiting), early + passing)).tolist()
    return found


def pipeline_peaks(work: ModuleWork, pipeline_rank: int, slots: list[Slot], forwards: KeptByForwards) -> Floats:
    """The most that forwards keep on the ranks of a pipeline rank, by its slots, (ranks,)."""
    peaks, groups = np.zeros(forwards.holding.plan.size), dict[str, int]()
    of_groups: list[Ranks] = []
    stages = range(pipeline_rank, len(work.stages), work.pipeline_ranks)
    for c in (c for micro_batch in work.micro_batches for c in micro_batch if c.items and c.group not in groups):
        groups[c.group] = len(of_groups)
        of_groups.append(work.stage_ranks(pipeline_rank, c.ranks))
    kept = np.zeros((len(stages), len(work.micro_batches), len(groups), 2))  # by forwards; and again, by a backward
    for chunk, stage in enumerate(stages):
        for c in (c for micro_batch in work.micro_batches if work.has_backward(stage) for c in micro_batch if c.items):
            if of_groups[groups[c.group]]:
                kept[chunk, c.micro_batch, groups[c.group]] = forwards.of(work, stage, c)
    phases, micro_batches, chunks = zip(*slots, strict=True)
    own, again = np.moveaxis(kept[list(chunks), list(micro_batches)], -1, 0)  # (slots, groups)
    freed = np.array([-1.0 if phase == "F" else FREED.get(phase, 0.0) for phase in phases])[:, None]
    before = np.cumsum(np.vstack([np.zeros(len(groups)), -freed[:-1] * own[:-1]]), axis=0)
    more = np.select([np.equal(phases, "F")[:, None], np.isin(phases, ("B", "I"))[:, None]], [own, again], 0.0)
    for ranks, most in zip(of_groups, np.max(before + more, axis=0, initial=0.0), strict=True):
        peaks[[*ranks]] = np.maximum(peaks[[*ranks]], most)
    return peaks


def waiting_peaks(plan: Plan, works: Mapping[str, ModuleWork], encoder: str, forwards: KeptByForwards) -> Floats:
    """The most that passes of an encoder keep between the forward that reads them and its backward, on the first stage
    of a module that feeds no other, (ranks,).
    """
    work, feeding, (step,) = works[encoder], {edge.source for edge in plan.edges}, plan.steps
    found = np.zeros(plan.size)
    for edge in (edge for edge in plan.edges if edge.source == encoder and edge.by == "tokens"):
        if edge.target in feeding:
            continue
        reading, fed = works[edge.target], plan.feeds_of(edge)
        slots = reading.slots(step.order_of(edge.target))[0]
        begin = {number: at for at, (phase, number, chunk) in enumerate(slots) if phase == "F" and chunk == 0}
        end = {number: at for at, (phase, number, chunk) in enumerate(slots) if phase in ("B", "I") and chunk == 0}
        at = {item: number for number, every in enumerate(reading.micro_batches) for c in every for item in c.items}
        curve = np.zeros((len(slots), plan.size))
        for c in (c for every in work.micro_batches for c in every):
            numbers = [at[reader] for item in c.items for reader in fed.get(item, ())]
            if numbers:
                own = kept_bytes(work, c, forwards)
                curve[min(map(begin.__getitem__, numbers))] += own
                curve[max(map(end.__getitem__, numbers))] -= own
        np.maximum(found, curve.cumsum(axis=0).max(axis=0, initial=0.0), out=found)
    return found


def kept_bytes(work: ModuleWork, c: GroupWork, forwards: KeptByForwards) -> Floats:
    """What the forwards of a group's work keep on each rank, (ranks,)."""
    found = np.zeros(forwards.holding.plan.size)
    for stage in (stage for stage in range(len(work.stages)) if c.items and work.has_backward(stage)):
        ranks = work.stage_ranks(stage, c.ranks)
        if ranks:
            found[[*ranks]] += forwards.of(work, stage, c)[0]
    return found


def read_by_first_micro_batch(plan: Plan, works: Mapping[str, ModuleWork], encoder: str) -> set[int]:
    """The items of an encoder that a module which feeds no other reads itself in the first micro-batch."""
    feeding, found = {edge.source for edge in plan.edges}, set[int]()
    for edge in (edge for edge in plan.edges if edge.source == encoder and edge.target not in feeding):
        readers = {item for c in works[edge.target].micro_batches[0] for item in c.items}
        found |= {item for item, fed in plan.feeds_of(edge).items() if readers & {*fed}}
    return found
