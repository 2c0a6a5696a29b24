"""Seconds that a step takes at least, from a plan's passes alone: before any of its tasks is made.

A rank does one pass at a time, so that a step takes no less than all passes of any rank. Of a pipeline those of its
first rank, of its last, and of one with most layers are looked at, of which one has most to do.
"""

import numpy as np

from planner.costs import Pricing
from planner.plan.plan_file import Plan
from planner.plan.task import Phase
from planner.plan.tasks.module_work import ModuleWork, module_work, pass_task

PHASES: tuple[Phase, ...] = ("F", "B")


def least_seconds(plan: Plan, pricing: Pricing) -> float:
    """The least seconds of a plan of one step whose groups have their devices to themselves."""
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
