"""Property tests are the same on every run and never fail for being slow; workers begin with what most of them need."""

from hypothesis import HealthCheck, settings

from planner.launch import processes

settings.register_profile("planner", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("planner")
processes.PRELOADED.append("planner.runtime.worker")  # whatever launches first: workers are forked from one process
