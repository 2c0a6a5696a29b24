"""Predictions compared with measurements: of runs made here, and of published records."""

from planner.ledger.memory_by_use import PeakMemoryUse, peak_memory_use
from planner.ledger.step_overlay import StepOverlay, overlay_steps
from planner.ledger.work_kinds import KindSeconds, MeasuredTask, measured_timeline, seconds_by_kind

__all__ = [
    "KindSeconds",
    "MeasuredTask",
    "PeakMemoryUse",
    "StepOverlay",
    "measured_timeline",
    "overlay_steps",
    "peak_memory_use",
    "seconds_by_kind",
]
