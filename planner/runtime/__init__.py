"""A plan on real processes: its tasks executed, timed, and checked against one process. Importing it loads no torch."""

from planner.runtime.options import Progress, RunOptions
from planner.runtime.result import Measured, Planned, RunResult, StepResult, Verified
from planner.runtime.run import run

__all__ = ["Measured", "Planned", "Progress", "RunOptions", "RunResult", "StepResult", "Verified", "run"]
