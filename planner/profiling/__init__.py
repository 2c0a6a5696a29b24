"""Measures layers of a model, its optimizer, and collectives on this machine."""

from planner.profiling.measure_profile import ProfileOptions, profile
from planner.profiling.measure_shares import profile_shares
from planner.profiling.measurement_context import device_name, gpu_count

__all__ = [
    "ProfileOptions",
    "device_name",
    "gpu_count",
    "profile",
    "profile_shares",
]
