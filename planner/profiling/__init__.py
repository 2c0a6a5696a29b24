"""Measures layers of a model, its optimizer, and collectives on this machine."""

from planner.profiling.measurement_context import device_name, gpu_count
from planner.profiling.profile import ProfileOptions, profile

__all__ = [
    "ProfileOptions",
    "device_name",
    "gpu_count",
    "profile",
]
