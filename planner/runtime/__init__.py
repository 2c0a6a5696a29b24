"""Executes a plan on real processes: its tasks, timed, and checked for parity with one process."""

from planner.runtime.checkpoint.checkpoint_index import DamagedCheckpoint, saved_steps
from planner.runtime.checkpoint.kept_checkpoints import put_back_kept
from planner.runtime.checkpoint.resume_checks import resolve_resume
from planner.runtime.parity.parity_tolerance import (
    ParityTolerance,
    parity_errors_text,
    parity_failure,
    parity_tolerance,
    within_tolerance,
)
from planner.runtime.preflight.preflight_checks import require_quick_checks, unenforced_shares
from planner.runtime.resume_command import resume_command
from planner.runtime.run import run
from planner.runtime.run_options import LocalDevices, Progress, RunOptions, TrainingOptions
from planner.runtime.run_result import (
    FeatureCounts,
    ParityErrors,
    PlanningOverlap,
    RankMemory,
    RunResult,
    StepResult,
    StopReason,
)
