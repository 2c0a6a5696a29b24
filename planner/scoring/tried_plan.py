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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs import Pricing, SharedPrices, pricing_of, step_prices
from planner.plan.plan_file import Plan
from planner.plan.schedules import Slot
from planner.plan.schedules.zero_bubble import KEPT_FOR_WEIGHTS
from planner.plan.tasks.expand import expand
from planner.plan.tasks.module_tasks import BACKWARD, FORWARD, ModuleTasks
from planner.plan.tasks.module_work import ModuleWork, module_work
from planner.plan.tasks.ragged_array import ragged
from planner.plan.tasks.step_draft import StepDraft
from planner.plan.tasks.task_table import TaskTable, numbered
from planner.scoring.host_memory import require_host_memory
from planner.scoring.offload_check import hidden_offload, require_hidden_offload
from planner.scoring.plan_memory import PlanMemory, exceeds_memory
from planner.scoring.score import require_peaks
from planner.scoring.step_simulation import represented_groups
from planner.simulate import MemoryCurves, simulated_end

Floats = NDArray[np.float64]
FREED = {"B": 1.0, "I": 1.0 - KEPT_FOR_WEIGHTS, "W": KEPT_FOR_WEIGHTS}  # by a pass, of what its forward kept


@dataclass(frozen=True)
class TriedPlan:
    """A plan of one step, expanded and priced once; `shared`: prices, with other plans of its job."""

    plan: Plan
    shared: SharedPrices = field(default_factory=SharedPrices)

    @cached_property
    def represented(self) -> dict[int, int]:
        """Rank of a large step whose tasks are not made → the rank that does the same."""
        return represented_groups(self.plan, 0).ranks

    @cached_property
    def tasks(self) -> TaskTable:
        """The tasks of the step, but for those of ranks that others represent. Raises InputError where they wait for
        each other.
        """
        return expand(self.plan, 0, self.represented)

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
        return self.plan_memory.in_order(self.tasks, self.represented)

    @cached_property
    def least_peaks(self) -> list[float]:
        """Bytes on every rank at its peak at least, without its tasks."""
        return least_peaks(self.plan, self.plan_memory, self.represented)

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
        spans = self.plan_memory.one_by_one(self.tasks, self.represented)
        require_host_memory(self.plan_memory, spans, self.tasks)

    @cached_property
    def least_seconds(self) -> float:
        """Seconds that the step takes at least, without its tasks."""
        return least_seconds(self.plan, self.pricing, self.represented)

    def hidden_offload(self, module: str) -> float:
        """The largest share of the activations of every item of a module whose copies hide."""
        return hidden_offload(self.plan, self.pricing, module)

    def step_seconds(self) -> float:
        """The seconds of the step, as its score has them. Raises InputError for offload that would not hide."""
        require_hidden_offload(self.plan, 0, self.pricing, self.tasks)
        return simulated_end(self.tasks, step_prices(self.pricing, self.tasks))


def least_seconds(plan: Plan, pricing: Pricing, represented: Mapping[int, int]) -> float:
    """The least seconds of a plan's one step by its passes alone, whose groups have their devices to themselves."""
    (step,), busy = plan.steps, np.zeros(plan.size)
    for name in plan.layouts:
        draft = StepDraft([module_work(plan, step, name, represented)])
        module = draft.modules[name]
        items = [place for place, c in enumerate(module.cells) if c.items]
        passes = [
            module.numbers[items, stage, code]
            for stage in looked_at(module.work)
            for code in ((FORWARD, BACKWARD) if module.work.has_backward(stage) else (FORWARD,))
        ]
        tasks = draft.apart(np.concatenate(passes))
        on_ranks = ragged([kind.ranks for kind in tasks.kinds]).gathered(tasks.kind)
        seconds = np.array([cost.value for cost in step_prices(pricing, ()).each(tasks)])
        np.add.at(busy, on_ranks.values, seconds[on_ranks.owners()])
    return float(busy.max())


def looked_at(work: ModuleWork) -> list[int]:
    """The stages of the pipeline ranks that are looked at."""
    last = work.pipeline_ranks - 1
    fullest = max(range(work.pipeline_ranks), key=lambda rank: len(work.rank_layers(rank)))
    return [stage for rank in sorted({0, fullest, last}) for stage in range(rank, len(work.stages), last + 1)]


class ForwardBytes(NamedTuple):
    """What forwards keep on each of their ranks until their backwards, (works, stages); zero: it has none."""

    module: ModuleTasks
    kept: Floats
    again: Floats  # what their backwards hold besides, recomputed

    def of(self, place: int, size: int) -> Floats:
        """Bytes that the forwards of a group's work keep on each of so many ranks, (ranks,)."""
        found, work = np.zeros(size), self.module.work
        for stage in np.flatnonzero(self.kept[place]).tolist():
            found[[*work.stage_ranks(stage, self.module.cells[place].ranks)]] += self.kept[place, stage]
        return found


def forward_bytes(holding: PlanMemory, work: ModuleWork) -> ForwardBytes:
    """What the forwards of a module keep, found once for those that are alike."""
    draft = StepDraft([work])
    (module,) = draft.modules.values()
    items = np.array([bool(work.items) for work in module.works], dtype=np.bool_)
    places, stages = np.nonzero(module.possible[..., FORWARD] & module.possible[..., BACKWARD] & items[:, None])
    tasks = draft.apart(module.numbers[places, stages, FORWARD])
    found = np.zeros((2, *module.shape[:2]))
    both = holding.bytes_of(tasks, ("F",), lambda task: (holding.forward_bytes(task), holding.recomputed_bytes(task)))
    found[:, places, stages] = both.T
    return ForwardBytes(module, *found)


def least_peaks(plan: Plan, holding: PlanMemory, represented: Mapping[int, int]) -> list[float]:
    """Bytes that each rank holds at least at its peak, of a plan of one step, by its passes alone. `represented`: rank
    → another that does the same.
    """
    (step,) = plan.steps
    feeding = {edge.source for edge in plan.edges}
    static = np.array([holding.static_bytes(rank) for rank in range(plan.size)])
    passing, early, kept, waiting = np.zeros((4, plan.size))
    works = {name: module_work(plan, step, name, represented) for name in plan.layouts}
    for name, work in works.items():
        if name in feeding and step.placements:
            continue
        forwards = forward_bytes(holding, work)
        if name not in feeding:
            for pipeline_rank, slots in enumerate(work.slots(step.order_of(name))):
                np.maximum(passing, pipeline_peaks(forwards, pipeline_rank, slots, plan.size), out=passing)
        elif step.rules(name, "B"):
            np.maximum(waiting, waiting_peaks(plan, works, name, forwards), out=waiting)
        else:
            first = read_by_first_micro_batch(plan, works, name)
            for place, c in enumerate(forwards.module.cells):
                own = forwards.of(place, plan.size)
                kept += own
                early += own * any(item in first for item in c.items)
    most = np.maximum(np.maximum(kept, waiting), early + passing)
    most[[*represented]] = most[[*represented.values()]]
    found: list[float] = (static + most).tolist()
    return found


def pipeline_peaks(forwards: ForwardBytes, pipeline_rank: int, slots: list[Slot], size: int) -> Floats:
    """The most that forwards keep on the ranks of a pipeline rank, by its slots, (ranks,)."""
    module, peaks = forwards.module, np.zeros(size)
    work, stages = module.work, module.stages_of(pipeline_rank)
    groups = numbered([c.group for c in module.cells])
    members = [module.cells[place] for place in np.unique(groups, return_index=True)[1]]
    each = np.stack([forwards.kept, forwards.again], axis=-1)[: len(module.cells), stages]  # (places, chunks, 2)
    kept = np.zeros((len(work.micro_batches), len(members), *each.shape[1:]))
    kept[module.micro_batch_of, groups] = each
    phases, micro_batches, chunks = zip(*slots, strict=True)
    own, again = np.moveaxis(kept[list(micro_batches), :, list(chunks)], -1, 0)  # (slots, groups)
    freed = np.array([-1.0 if phase == "F" else FREED.get(phase, 0.0) for phase in phases])[:, None]
    before = np.cumsum(np.vstack([np.zeros(len(members)), -freed[:-1] * own[:-1]]), axis=0)
    more = np.select([np.equal(phases, "F")[:, None], np.isin(phases, ("B", "I"))[:, None]], [own, again], 0.0)
    for c, most in zip(members, np.max(before + more, axis=0, initial=0.0), strict=True):
        ranks = [*work.stage_ranks(pipeline_rank, c.ranks)]
        peaks[ranks] = np.maximum(peaks[ranks], most)
    return peaks


def waiting_peaks(plan: Plan, works: Mapping[str, ModuleWork], encoder: str, forwards: ForwardBytes) -> Floats:
    """The most that passes of an encoder keep between the forward that reads them and its backward, on the first stage
    of a module that feeds no other, (ranks,).
    """
    feeding, (step,) = {edge.source for edge in plan.edges}, plan.steps
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
        for place, c in enumerate(forwards.module.cells):
            numbers = [at[reader] for item in c.items for reader in fed.get(item, ())]
            if numbers:
                own = forwards.of(place, plan.size)
                curve[min(map(begin.__getitem__, numbers))] += own
                curve[max(map(end.__getitem__, numbers))] -= own
        np.maximum(found, curve.cumsum(axis=0).max(axis=0, initial=0.0), out=found)
    return found


def read_by_first_micro_batch(plan: Plan, works: Mapping[str, ModuleWork], encoder: str) -> set[int]:
    """The items of an encoder that a module which feeds no other reads itself in the first micro-batch."""
    feeding, found = {edge.source for edge in plan.edges}, set[int]()
    for edge in (edge for edge in plan.edges if edge.source == encoder and edge.target not in feeding):
        readers = {item for c in works[edge.target].micro_batches[0] for item in c.items}
        found |= {item for item, fed in plan.feeds_of(edge).items() if readers & {*fed}}
    return found
