"""Predicted beside measured: of the runs made here, and of what others published."""

from planner.ledger.beside import Kind, Record, beside, measured_timeline

__all__ = ["Kind", "Record", "beside", "measured_timeline"]
