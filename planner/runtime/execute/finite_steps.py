"""A step whose loss or gradients are no numbers ends the run: every update behind it would be lost work.

The loss of a rank is read at the end of each step anyway, so that looking at it costs nothing. The norm of gradients is
looked at where it is computed: for clipping, or for the metrics file.
"""

import math

import torch
import torch.distributed as dist

from planner.errors import RunFailed
from planner.launch import Worker
from planner.launch.communication import barrier
from planner.runtime.execute.task_executor import RankStepResult

FIX = "lower the learning rate, give more steps of warm-up, or look at the items of this step"


def require_finite(worker: Worker, step: RankStepResult, number: int) -> None:
    """Every rank calls it behind its step. Raises RunFailed on the ranks whose own loss is not finite, at the first
    task with such a loss; and on every rank where only gradients are not finite.
    """
    lost, norm = not math.isfinite(step.loss), step.clipped.norm if step.clipped else 0.0
    if not math.isfinite(norm) and any_rank(lost, worker) and not lost:
        barrier()  # until the rank whose loss it is has failed, and ended this one
    if lost:
        worker.begin_task(step.lost_in)
        raise RunFailed(f"the loss is {step.loss} in step {number}", where=f"step {number}", fix=FIX)
    if not math.isfinite(norm):
        raise RunFailed(f"the norm of gradients is {norm} in step {number}", where=f"step {number}", fix=FIX)


def any_rank(here: bool, worker: Worker) -> bool:
    """Whether it is so on any rank."""
    found = torch.tensor(int(here), device=worker.device)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return bool(found.item())
