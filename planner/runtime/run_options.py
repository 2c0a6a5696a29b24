"""Options of a run, and of its weight updates: AdamW (arXiv 1711.05101), its learning rate schedule, gradient clipping;
and the progress that a run reports after each step.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.plan.step_files import step_folder
from planner.plan.task import RankWork
from planner.specs.base import Ranks
from planner.specs.parallelism import Dtype
from planner.specs.run_option_help import OnSpike

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
        """Learning rate of `step`, from 0, in a run of `of` steps. (Cosine: arXiv 1608.03983, without restarts.)"""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, of - self.warmup)
        factor = {"constant": 1.0, "cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done}
        return self.learning_rate * factor[self.schedule]


DEFAULT_TRAINING = TrainingOptions()


def training_checks(training: TrainingOptions) -> Iterator[tuple[bool, str, str, str]]:
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


@dataclass(frozen=True, slots=True)
class Retention:
    """Which checkpoints are kept."""

    last: int = 1  # so many, the newest among them
    every: int | None = None  # and those after each so many steps; None: no others

    def keeps_forever(self, steps: int) -> bool:
        """Whether a checkpoint after `steps` steps is never removed."""
        return self.every is not None and steps % self.every == 0


@dataclass(frozen=True, slots=True)
class RunOptions:
    steps: int | None = None  # optimizer steps in all, cycling through the plan's steps or the data; None: each once
    verify: bool = False  # compare the first pass through the plan with one process (parity)
    dtype: Dtype | None = None  # None: the plan's
    seed: int = 0  # of weights and items
    training: TrainingOptions = DEFAULT_TRAINING  # AdamW, its schedule and clipping
    max_seconds: float | None = None  # the run stops after the first step that ends later than this; None: no limit
    metrics: Path | None = None  # file to which a JSON line is appended after each step
    base: Path = Path()  # folder of the plan file, to which the path of its step folder is relative
    source: str = ""  # path of the plan file in error messages; empty: the plan's name
    data: Path | None = None  # a folder whose sample i is item i (models/inputs/); None: synthetic items
    weights: Path | None = None  # a Hugging Face checkpoint from which decoders start; None: random weights
    allow_different: tuple[str, ...] = ()  # in what the plan's model may differ from the config.json of `weights`
    save: Path | None = None  # folder of the checkpoint (runtime/checkpoint/); None: nothing is saved
    save_every: int | None = None  # save after every so many steps; None: after the last one only
    keep: int = 1  # of the last checkpoints, and those after each `keep_every` steps
    keep_every: int | None = None
    resume: Path | None = None  # folder of a checkpoint to resume from; None: start from step 0
    resumes: bool = field(default=False, compare=False)  # whether --resume was given: it may train steps once more
    elastic: bool = False  # whether the run continues on fewer ranks where some are lost
    features: Path | None = None  # folder of features that a plan keeps on a disk
    hang_seconds: float | None = None  # that a task may take; None: by its prediction (runtime/run.py)
    on_spike: OnSpike = "log"  # what follows a malignant spike of the loss (runtime/health/)
    spike_steps: int = 8  # a spike of the loss that lasts longer is malignant
    check_replicas: int | None = None  # compare replicas after every so many steps, and before saving; None: never
    table_scale: float | None = None  # c of embedding tables' AdaGrad (models/embedding_shard.py); None: their groups
    record: Path | None = None  # folder for what torch.profiler records of the first steps; None: nothing is recorded
    memory_snapshot: Path | None = None  # folder for the memory history of each GPU in the last step; None: no

    def step_count(self, plan: Plan) -> int:
        """Number of optimizer steps of the run. Raises InputError when neither the plan nor `steps` bounds it."""
        if self.steps is not None:
            return self.steps
        further = plan.then.batches if plan.then else 0
        if further is None:
            raise InputError(
                "the data has no end, and nothing says how many steps to train", where="--steps", fix="say how many"
            )
        return len(plan.steps) + further

    def saves_after(self, steps: int, last: bool) -> bool:
        """Whether a run that saves writes a checkpoint after `steps` steps."""
        return last or bool(self.save_every and steps % self.save_every == 0)

    def checks_replicas_after(self, steps: int, saves: bool) -> bool:
        """Whether replicas are compared after `steps` steps; `saves`: whether a checkpoint is saved then."""
        return self.check_replicas is not None and (saves or steps % self.check_replicas == 0)

    @property
    def retention(self) -> Retention:
        """Which checkpoints are kept."""
        return Retention(self.keep, self.keep_every)

    def steps_folder(self, plan: Plan) -> Path | None:
        """Folder of steps that are planned during the run; None when all are in the plan. Raises InputError."""
        folder = step_folder(plan, self.base, self.source or plan.name)
        return folder if folder and self.step_count(plan) > len(plan.steps) else None


@dataclass(frozen=True, slots=True)
class LocalDevices:
    """Devices of this machine that a run has; it ends behind its step where it should have others."""

    numbers: Ranks  # one for each rank
    changed: Callable[[], bool]  # whether it should have others by now


@dataclass(frozen=True, slots=True)
class Progress:
    """What is reported when a step is done."""

    step: int  # from 1
    of: int
    loss: float  # per token that has a target
    tokens: int
    seconds: float
    work: tuple[RankWork, ...] = ()  # of each rank; of many ranks, in the last steps only
