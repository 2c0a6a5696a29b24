"""Measure what pieces of a model, and collectives, cost on this machine. Importing it loads no torch."""

from planner.profiling.context import device_name, gpu_count
from planner.profiling.profile import ProfileOptions, profile

__all__ = ["ProfileOptions", "device_name", "gpu_count", "profile"]
