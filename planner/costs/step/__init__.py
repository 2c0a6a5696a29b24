"""The closed form of a static step: seconds of stages, pipeline and replicas, for columns of layouts."""

from planner.costs.step.static_step import StepSeconds, static_step_seconds

__all__ = [
    "StepSeconds",
    "static_step_seconds",
]
