"""Executes a plan on real processes: runs its tasks, times them, checks parity with one process. Importing it loads no
torch.
"""

from planner.runtime.going_on import taken_up
from planner.runtime.options import Progress, RunOptions
from planner.runtime.result import Ended, Measured, Planned, RankMemory, RunResult, StepResult, Verified
from planner.runtime.run import run
from planner.runtime.runnable import require_at_once
from planner.runtime.tolerance import Bound, bound, errors, unlike, within
from planner.runtime.training import Schedule, Training
from planner.runtime.unenforced import unenforced

__all__ = [
    "Bound",
    "Ended",
    "Measured",
    "Planned",
    "Progress",
    "RankMemory",
    "RunOptions",
    "RunResult",
    "Schedule",
    "StepResult",
    "Training",
    "Verified",
    "bound",
    "errors",
    "require_at_once",
    "run",
    "taken_up",
    "unenforced",
    "unlike",
    "within",
]
