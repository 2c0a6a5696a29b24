"""How a run updates weights: AdamW (arXiv 1711.05101), its rate over the steps, and the norm that gradients keep to."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from planner.errors import InputError

Schedule = Literal["constant", "cosine", "linear"]


@dataclass(frozen=True, slots=True)
class Training:
    learning_rate: float = 1e-3  # the highest
    schedule: Schedule = "constant"  # after the warm-up: as it is, or down to nothing behind the last step
    warmup: int = 0  # steps in which the rate rises to its highest
    clip: float | None = None  # largest norm of all gradients together; None: as they are
    betas: tuple[float, float] = (0.9, 0.999)
    decay: float = 0.01  # of matrices; norms and biases keep what they learn

    def rate(self, step: int, of: int) -> float:
        """The learning rate of a step, from 0, of so many. (Cosine: arXiv 1608.03983, without restarts.)"""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, of - self.warmup)
        left = {"constant": 1.0, "cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done}
        return self.learning_rate * left[self.schedule]


USUAL = Training()


def require_training(training: Training) -> None:
    """Raises InputError with the first option that nothing can be trained with."""
    for fits, message, where, fix in checks(training):
        if not fits:
            raise InputError(message, where=where, fix=fix)


def checks(of: Training) -> Iterator[tuple[bool, str, str, str]]:
    """Whether it fits; what, where and what to do if not."""
    rate, clip, decay = of.learning_rate, of.clip, of.decay
    yield 0 <= rate < math.inf, f"{rate} is no learning rate", "--learning-rate", "such as 1e-3"
    known = get_args(Schedule)
    yield of.schedule in known, f"no schedule is called `{of.schedule}`", "--schedule", f"one of {', '.join(known)}"
    yield of.warmup >= 0, f"{of.warmup} steps of warm-up", "--warmup", "0, or more"
    yield clip is None or 0 < clip < math.inf, f"gradients cannot be clipped to a norm of {clip}", "--clip", "such as 1"
    yield (
        all(0 <= beta < 1 for beta in of.betas),
        "no betas: " + " ".join(map(str, of.betas)),
        "--betas",
        "from 0 to below 1, such as 0.9 0.95",
    )
    yield 0 <= decay < math.inf, f"weights cannot decay by {decay}", "--weight-decay", "such as 0.1"
