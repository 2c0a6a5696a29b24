"""Predictions compared with measurements: of runs made here, and of published records."""

from planner.ledger.beside import Kind, Record, beside, measured_timeline
from planner.ledger.memory import Used, used
from planner.ledger.overlay import Overlay, overlaid

__all__ = ["Kind", "Overlay", "Record", "Used", "beside", "measured_timeline", "overlaid", "used"]
