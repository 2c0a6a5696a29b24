"""Measures layers of a model, its optimizer, and collectives on this machine; and data loaders."""

from planner.profiling.loader_of_job import loader_of_job
from planner.profiling.loader_profile import MeasuredLoader, items_per_second, loader_of_object, measure_loader
from planner.profiling.measure_profile import ProfileOptions, profile
from planner.profiling.measure_shares import profile_shares
from planner.profiling.measurement_context import device_name, gpu_count
