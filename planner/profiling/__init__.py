"""Measures layers of a model, its optimizer, and collectives on this machine. Importing it loads no torch."""

from planner.profiling.measurement_context import device_name, gpu_count
from planner.profiling.profile import ProfileOptions, profile

__all__ = [
    "ProfileOptions",
    "device_name",
    "gpu_count",
    "profile",
]
