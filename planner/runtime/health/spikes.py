"""Spikes of the loss and the norm of gradients: those that pass are noted, those of the loss that stay are malignant.

LLM360 K2's report tells two kinds apart: benign spikes, from which a run recovers alone, and malignant ones, for which
it was rolled back to a checkpoint and trained on without the data that led to them; PaLM's did so too (arXiv
2204.02311, section 5.1). A value is a spike where it is above the median of the last 16 usual ones by more than six
standard deviations, and by more than a tenth of it (a norm: twice as large). Deviations are estimated by the median
change from one usual value to the next, of the last 64, so that a falling loss does not widen them. Values within a
spike are not usual. The first 16 steps of a process judge nothing.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple

USUAL_STEPS, LEAST_STEPS = 64, 16
DEVIATIONS = 6.0
CHANGE_TO_DEVIATION = 1.4826 / math.sqrt(2)  # of independent values with a normal distribution, from the median change
LOSS_RISE, NORM_RISE = 0.1, 1.0  # shares of the median


class HealthNote(NamedTuple):
    """What is worth a line in the log of a run."""

    step: int
    text: str


class Spike(NamedTuple):
    """A spike of the loss that lasted."""

    first: int  # steps, from 1
    last: int


@dataclass(slots=True)
class Level:
    """What is usual of a quantity, and since which step it is not."""

    name: str
    least_rise: float  # share of the median by which a spike is above it, at least
    usual: deque[float] = field(default_factory=lambda: deque(maxlen=USUAL_STEPS))
    since: int = 0  # first step of the spike; 0: there is none
    peak: float = 0.0

    @property
    def middle(self) -> float:
        """The usual value now: the median of the last usual ones."""
        return median([*self.usual][-LEAST_STEPS:])

    def limit(self) -> float:
        """Above this is a spike."""
        deviation = CHANGE_TO_DEVIATION * median(abs(after - before) for before, after in pairwise(self.usual))
        return self.middle + max(DEVIATIONS * deviation, self.least_rise * abs(self.middle))

    def see(self, step: int, value: float) -> str:
        """The value of a step; returns what became of the spike that ended with it, if one did."""
        if len(self.usual) >= LEAST_STEPS and value > self.limit():
            self.peak = max(self.peak, value) if self.since else value
            self.since = self.since or step
            return ""
        first, self.since = self.since, 0
        middle = self.middle if first else 0.0
        self.usual.append(value)
        if not first:
            return ""
        steps = f"step {first}" if first == step - 1 else f"steps {first} to {step - 1}"
        return f"a benign spike of the {self.name} in {steps}: up to {self.peak:.4g}, usually {middle:.4g}"

    def accept(self) -> None:
        """Take what comes now for usual."""
        self.usual.clear()
        self.since = 0


class SpikeWatch:
    """Sees every step of a run; a spike of the loss that lasts more than `patience` steps is malignant."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.loss, self.norm = Level("loss", LOSS_RISE), Level("norm of gradients", NORM_RISE)
        self.malignant: Spike | None = None

    def see(self, step: int, loss: float, norm: float | None) -> list[HealthNote]:
        """What there is to note behind this step, counted from 1."""
        texts = [self.loss.see(step, loss), self.norm.see(step, norm) if norm is not None else ""]
        self.malignant = None
        for level in (self.loss, self.norm):
            if level.since and step - level.since >= self.patience:
                texts.append(self.judge_lasting(level, step))
        return [HealthNote(step, text) for text in texts if text]

    def judge_lasting(self, level: Level, step: int) -> str:
        """What to note of a spike that does not pass. A higher norm of gradients is nothing to go back for."""
        first, peak, middle = level.since, level.peak, level.middle
        level.accept()
        values = f"above its usual {middle:.4g} since step {first}, up to {peak:.4g}"
        if level is self.norm:
            return f"the norm of gradients stays {values}: this is the usual one now"
        self.malignant = Spike(first, step)
        return f"a malignant spike: the loss stays {values}"

    @property
    def unsettled(self) -> bool:
        """Whether a spike of the loss has begun of which nobody knows yet how it ends."""
        return bool(self.loss.since)
