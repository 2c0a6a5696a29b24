"""What a search asks of each plan that it tries: whether it fits, and how long its step takes.

A score says the same, and has a timeline, memory over time and a bound besides, which only the plan that is chosen
needs. For plans of one step in which a rank does one pass at a time: memory in the order of its tasks is that of the
simulated step then, so that what does not fit is not simulated; and what holds too much by its passes alone, or takes
too long by them, has no tasks made (`least_seconds`, and least_peaks.py).

A rank does one pass at a time, so that a step takes no less than all passes of any rank. Of a pipeline those of its
first rank, of its last, and of one with most layers are looked at, of which one has most to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from planner.costs import Pricing, SharedPrices, pricing_of
from planner.plan.plan_file import Plan
from planner.plan.task import Phase, Task
from planner.plan.tasks.expand import expand
from planner.plan.tasks.module_work import ModuleWork, module_work, pass_task
from planner.scoring.least_peaks import least_peaks
from planner.scoring.offload_check import hidden_offload, require_hidden_offload
from planner.scoring.plan_memory import PlanMemory, exceeds_memory
from planner.scoring.score import require_peaks
from planner.simulate import MemoryCurves, simulated_end

PHASES: tuple[Phase, ...] = ("F", "B")


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
    def peaks(self) -> Sequence[float]:
        """Bytes on every rank at its peak; where the least that these may be is too much, that."""
        least = least_peaks(self.plan, self.plan_memory)
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

    def share_of(self, peaks: Sequence[float]) -> float:
        """The greatest of these bytes of each rank over what it may hold."""
        return max(peak / self.plan_memory.allowed_bytes(rank) for rank, peak in enumerate(peaks))

    def require_memory(self) -> None:
        """Raise Infeasible when a rank holds more than its device allows."""
        if self.plan.uses.limits.tokens_per_rank is None:
            require_peaks(self.plan, self.plan_memory, self.peaks)

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
