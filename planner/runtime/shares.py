"""Moved to `planner.plan.shares`."""

from planner.plan.shares import Run, runs, runs_on

__all__ = ["Run", "runs", "runs_on"]
