"""Stops a run before its last step, after the same step on every rank: its time is up, or a signal asks for it."""

import time
from contextlib import AbstractContextManager
from types import FrameType
from typing import get_args

import torch
import torch.distributed as dist

from planner.launch import Worker, handling_interrupts
from planner.runtime.run_result import REASON_OF_SIGNAL, StopReason

REASONS: tuple[StopReason, ...] = get_args(StopReason)  # later ones take precedence


class EarlyStop:
    """Rank 0 watches the time limit, since clocks differ; a signal may reach any rank."""

    def __init__(self, worker: Worker, max_seconds: float | None) -> None:
        self.worker, self.max_seconds = worker, max_seconds
        self.started = time.monotonic()
        self.received: StopReason | None = None  # by this rank

    def catching_interrupts(self) -> AbstractContextManager[None]:
        """While entered, Ctrl-C, SIGTERM and SIGHUP stop the run after the current step, or after the first if none has
        started.
        """
        return handling_interrupts(self.on_interrupt)

    def on_interrupt(self, number: int, frame: FrameType | None) -> None:
        self.received = REASON_OF_SIGNAL[number]

    def agree_on_reason(self) -> StopReason:
        """Called on every rank after a step: why it was the last, or `steps` if the run continues. One all-reduce."""
        over = self.max_seconds is not None and time.monotonic() - self.started >= self.max_seconds
        reason: StopReason = self.received or ("time" if over and self.worker.rank == 0 else "steps")
        index = torch.tensor(REASONS.index(reason), device=self.worker.device)
        dist.all_reduce(index, dist.ReduceOp.MAX)
        return REASONS[int(index.item())]
