"""Measurements of a run: task records, metrics and GPU memory."""

from planner.runtime.measure.metrics_file import finite_or_none
