"""Stops a run before its last step, after the same step on every rank: its time is up, or somebody pressed Ctrl-C."""

import time
from contextlib import AbstractContextManager
from types import FrameType

import torch
import torch.distributed as dist

from planner.launch import Worker, handling_interrupts
from planner.runtime.run_result import StopReason

REASONS: tuple[StopReason, ...] = ("steps", "time", "interrupt")  # later ones take precedence


class EarlyStop:
    """Rank 0 watches the time limit, since clocks differ; a signal may reach any rank."""

    def __init__(self, worker: Worker, max_seconds: float | None) -> None:
        self.worker, self.max_seconds = worker, max_seconds
        self.started, self.interrupted = time.monotonic(), False

    def catching_interrupts(self) -> AbstractContextManager[None]:
        """While entered, Ctrl-C stops the run after the current step, or after the first if none has started."""
        return handling_interrupts(self.on_interrupt)

    def on_interrupt(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True

    def agree_on_reason(self) -> StopReason:
        """Called on every rank after a step: why it was the last, or `steps` if the run continues. One all-reduce."""
        over = self.max_seconds is not None and time.monotonic() - self.started >= self.max_seconds
        reason: StopReason = "interrupt" if self.interrupted else "time" if over and self.worker.rank == 0 else "steps"
        index = torch.tensor(REASONS.index(reason), device=self.worker.device)
        dist.all_reduce(index, dist.ReduceOp.MAX)
        return REASONS[int(index.item())]
