"""Property tests are the same on every run, and never fail for being slow."""

from hypothesis import HealthCheck, settings

settings.register_profile("planner", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("planner")
