"""What a run is told, and what it tells while it lasts."""

from dataclasses import dataclass

from planner.specs.job import Dtype


@dataclass(frozen=True, slots=True)
class RunOptions:
    steps: int | None = None  # optimizer steps, over and over through the plan's; None: each of them once
    verify: bool = False  # hold the plan's first pass against one process
    dtype: Dtype | None = None  # None: the plan's
    seed: int = 0  # of weights and items
    learning_rate: float = 1e-3  # of AdamW


@dataclass(frozen=True, slots=True)
class Progress:
    """One step is done."""

    step: int  # from 1
    of: int
    loss: float  # per token
    tokens: int
    seconds: float
