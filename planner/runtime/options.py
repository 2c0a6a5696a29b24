"""What a run is told, and what it tells while it lasts."""

from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError
from planner.plan.model import Plan
from planner.runtime.training import USUAL, Training
from planner.specs.parallelism import Dtype


@dataclass(frozen=True, slots=True)
class RunOptions:
    steps: int | None = None  # optimizer steps in all, over and over through the plan's or the data; None: each once
    verify: bool = False  # hold the plan's first pass against one process
    dtype: Dtype | None = None  # None: the plan's
    seed: int = 0  # of weights and items
    training: Training = USUAL  # how weights are updated
    max_seconds: float | None = None  # the run ends behind the first step that is over after so long; None: it has all
    metrics: Path | None = None  # a line for each step is added to this file
    base: Path = Path()  # where the plan lies: from there its folder of further steps is named
    source: str = ""  # the plan's file, as messages name it; empty: by the plan's name
    data: Path | None = None  # a folder of tokens, of which item i is row i (models/tokens.py); None: synthetic items
    weights: Path | None = None  # a checkpoint of Hugging Face from which decoders start; None: drawn weights
    save: Path | None = None  # a folder for what was trained (runtime/checkpoint.py); None: it is not kept
    save_every: int | None = None  # steps behind which it is saved; None: behind the last one alone
    resume: Path | None = None  # such a folder, with which the run goes on; None: it begins anew
    memory_snapshot: Path | None = None  # a folder for the history of each GPU's memory in the last step; None: no

    def count(self, plan: Plan) -> int:
        """How many steps the run has. Raises InputError when nothing says it."""
        if self.steps is not None:
            return self.steps
        further = plan.then.batches if plan.then else 0
        if further is None:
            raise InputError(
                "the data has no end, and nothing says how many steps to train", where="--steps", fix="say how many"
            )
        return len(plan.steps) + further

    def saves(self, steps: int, last: bool) -> bool:
        """Whether a run that saves does so behind so many steps."""
        return last or bool(self.save_every and steps % self.save_every == 0)

    def steps_folder(self, plan: Plan) -> Path | None:
        """From where steps come that are not in the plan; None when the run has none."""
        return self.base / plan.then.folder if plan.then and self.count(plan) > len(plan.steps) else None


@dataclass(frozen=True, slots=True)
class Progress:
    """One step is done."""

    step: int  # from 1
    of: int
    loss: float  # per token that has a target
    tokens: int
    seconds: float
