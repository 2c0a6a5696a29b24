"""Stops a run before its last step: after the same step on every rank where its time is up or a signal asks for it; and
with an error where the loss or the gradients of a step are no numbers, as every update behind it would be lost work.

The loss of a rank is read at the end of each step anyway, so that looking at it costs nothing. The norm of gradients is
looked at where it is computed: for clipping, or for the metrics file.
"""

import math
import time
from contextlib import AbstractContextManager
from types import FrameType
from typing import NamedTuple, get_args

import torch
import torch.distributed as dist

from planner.errors import RunFailed
from planner.launch import Worker, handling_interrupts
from planner.launch.communication import barrier
from planner.runtime.execute.task_executor import RankStepResult
from planner.runtime.run_result import REASON_OF_SIGNAL, StopReason

REASONS: tuple[StopReason, ...] = get_args(StopReason)  # later ones take precedence
FIX = "lower the learning rate, give more steps of warm-up, or look at the items of this step"


class Agreement(NamedTuple):
    """What all ranks agree on behind a step: why the run stops there, and whether the step may be undone."""

    reason: StopReason  # why it was the last; `steps`: the run continues
    unsettled: bool = False  # whether it may have to be undone


class EarlyStop:
    """Rank 0 watches the time limit, since clocks differ; a signal may reach any rank."""

    def __init__(self, worker: Worker, max_seconds: float | None) -> None:
        self.worker, self.max_seconds = worker, max_seconds
        self.started = time.monotonic()
        self.received: StopReason | None = None  # by this rank

    def catching_interrupts(self) -> AbstractContextManager[None]:
        """While entered, Ctrl-C, SIGTERM and SIGHUP stop the run after the current step, or else after the first."""
        return handling_interrupts(self.on_interrupt)

    def on_interrupt(self, number: int, frame: FrameType | None) -> None:
        self.received = REASON_OF_SIGNAL[number]

    def agree(self, spikes: bool = False, unsettled: bool = False) -> Agreement:
        """Called on every rank after a step; one all-reduce. `spikes`: whether this rank stops for a spike."""
        over = self.max_seconds is not None and time.monotonic() - self.started >= self.max_seconds
        reason: StopReason = self.received or ("time" if over and self.worker.rank == 0 else "steps")
        here = [REASONS.index("spike" if spikes else reason), int(unsettled)]
        agreed = torch.tensor(here, device=self.worker.device)
        dist.all_reduce(agreed, dist.ReduceOp.MAX)
        index, any_unsettled = agreed.tolist()
        return Agreement(REASONS[index], bool(any_unsettled))


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
    """Whether `here` is true on any rank; one all-reduce."""
    found = torch.tensor(int(here), device=worker.device)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return bool(found.item())
