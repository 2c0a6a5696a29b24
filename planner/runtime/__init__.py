"""Executes a plan on real processes: runs its tasks, times them, checks parity with one process. Importing it loads no
torch.
"""

from planner.runtime.going_on import resolve_resume
from planner.runtime.options import Progress, RunOptions
from planner.runtime.result import StopReason, TaskRecord, PlanningTime, RankMemory, RunResult, StepResult, ParityErrors
from planner.runtime.run import run
from planner.runtime.runnable import require_quick_checks
from planner.runtime.tolerance import ParityTolerance, parity_tolerance, parity_errors_text, parity_failure, within_tolerance
from planner.runtime.training import Schedule, TrainingOptions
from planner.runtime.unenforced import unenforced_shares

__all__ = [
    "ParityTolerance",
    "StopReason",
    "TaskRecord",
    "PlanningTime",
    "Progress",
    "RankMemory",
    "RunOptions",
    "RunResult",
    "Schedule",
    "StepResult",
    "TrainingOptions",
    "ParityErrors",
    "parity_tolerance",
    "parity_errors_text",
    "require_quick_checks",
    "run",
    "resolve_resume",
    "unenforced_shares",
    "parity_failure",
    "within_tolerance",
]
