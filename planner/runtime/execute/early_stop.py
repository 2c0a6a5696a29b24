"""Stops a run before its last step, after the same step on every rank: its time is up, or a signal asks for it."""

import time
from contextlib import AbstractContextManager
from types import FrameType
from typing import NamedTuple, get_args

import torch
import torch.distributed as dist

from planner.launch import Worker, handling_interrupts
from planner.runtime.run_result import REASON_OF_SIGNAL, StopReason

REASONS: tuple[StopReason, ...] = get_args(StopReason)  # later ones take precedence


class Agreement(NamedTuple):
    """What all ranks know behind a step."""

    reason: StopReason  # why it was the last; `steps`: the run continues
    unsettled: bool = False  # whether it may have to be undone


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

    def agree(self, spikes: bool = False, unsettled: bool = False) -> Agreement:
        """Called on every rank after a step; one all-reduce. `spikes`: whether this rank stops for a spike."""
        over = self.max_seconds is not None and time.monotonic() - self.started >= self.max_seconds
        reason: StopReason = self.received or ("time" if over and self.worker.rank == 0 else "steps")
        here = [REASONS.index("spike" if spikes else reason), int(unsettled)]
        agreed = torch.tensor(here, device=self.worker.device)
        dist.all_reduce(agreed, dist.ReduceOp.MAX)
        index, any_unsettled = agreed.tolist()
        return Agreement(REASONS[index], bool(any_unsettled))
