"""When a run ends before its last step, the same on every rank: its time is over, or somebody pressed Ctrl-C."""

import time
from contextlib import AbstractContextManager
from types import FrameType

import torch
import torch.distributed as dist

from planner.launch.interrupts import interrupts
from planner.launch.worker import Worker
from planner.runtime.result import Ended

REASONS: tuple[Ended, ...] = ("steps", "time", "interrupt")  # the later ones outweigh those before


class Ending:
    """The first rank looks at its watch, since clocks differ; a signal may come to any of them."""

    def __init__(self, worker: Worker, max_seconds: float | None) -> None:
        self.worker, self.max_seconds = worker, max_seconds
        self.began, self.asked = time.monotonic(), False

    def listening(self) -> AbstractContextManager[None]:
        """Ctrl-C ends the run behind the step it is in, or behind its first if that is still to come."""
        return interrupts(self.ask)

    def ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def agreed(self) -> Ended:
        """Behind a step, on every rank: why it was the last, or `steps`: nothing ends the run but its steps."""
        over = self.max_seconds is not None and time.monotonic() - self.began >= self.max_seconds
        reason: Ended = "interrupt" if self.asked else "time" if over and self.worker.rank == 0 else "steps"
        number = torch.tensor(REASONS.index(reason), device=self.worker.device)
        dist.all_reduce(number, dist.ReduceOp.MAX)
        return REASONS[int(number.item())]
