from planner.costs.step.static_step import StepSeconds, static_step_seconds

__all__ = [
    "StepSeconds",
    "static_step_seconds",
]
