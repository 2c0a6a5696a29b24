"""Predictions compared with measurements: of runs made here, and of published records."""

from planner.ledger.beside import KindSeconds, MeasuredTask, seconds_by_kind, measured_timeline
from planner.ledger.memory import PeakMemoryUse, peak_memory_use
from planner.ledger.overlay import StepOverlay, overlay_steps

__all__ = ["KindSeconds", "StepOverlay", "MeasuredTask", "PeakMemoryUse", "seconds_by_kind", "measured_timeline", "overlay_steps", "peak_memory_use"]
