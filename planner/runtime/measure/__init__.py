"""Measurements of a run: task records, metrics and GPU memory."""
