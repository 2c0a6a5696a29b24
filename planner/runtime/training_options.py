"""Options of weight updates: AdamW (arXiv 1711.05101), its learning rate schedule, and gradient clipping."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from planner.errors import InputError

LearningRateSchedule = Literal["constant", "cosine", "linear"]


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    learning_rate: float = 1e-3  # peak
    schedule: LearningRateSchedule = "constant"  # after the warm-up: constant, or decaying to 0 after the last step
    warmup: int = 0  # steps in which the learning rate rises linearly to its peak
    clip: float | None = None  # largest global gradient norm; None: no clipping
    betas: tuple[float, float] = (0.9, 0.999)
    decay: float = 0.01  # weight decay of matrices; norms and biases have none

    def learning_rate_at(self, step: int, of: int) -> float:
        """Learning rate of `step`, counted from 0, in a run of `of` steps. (Cosine: arXiv 1608.03983, without
        restarts.)
        """
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, of - self.warmup)
        factor = {"constant": 1.0, "cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done}
        return self.learning_rate * factor[self.schedule]


DEFAULT_TRAINING = TrainingOptions()


def require_training_options(training: TrainingOptions) -> None:
    """Raises InputError for the first option that is out of range."""
    for valid, message, where, fix in option_checks(training):
        if not valid:
            raise InputError(message, where=where, fix=fix)


def option_checks(training: TrainingOptions) -> Iterator[tuple[bool, str, str, str]]:
    """For each option, whether it is valid, and message, place and fix if not."""
    rate, clip, decay = training.learning_rate, training.clip, training.decay
    yield 0 <= rate < math.inf, f"invalid learning rate {rate}", "--learning-rate", "such as 1e-3"
    known = get_args(LearningRateSchedule)
    yield (
        training.schedule in known,
        f"no schedule is called `{training.schedule}`",
        "--schedule",
        f"one of {', '.join(known)}",
    )
    yield training.warmup >= 0, f"{training.warmup} steps of warm-up", "--warmup", "0, or more"
    yield clip is None or 0 < clip < math.inf, f"gradients cannot be clipped to a norm of {clip}", "--clip", "such as 1"
    yield (
        all(0 <= beta < 1 for beta in training.betas),
        "invalid betas: " + " ".join(map(str, training.betas)),
        "--betas",
        "from 0 to below 1, such as 0.9 0.95",
    )
    yield 0 <= decay < math.inf, f"weights cannot decay by {decay}", "--weight-decay", "such as 0.1"
