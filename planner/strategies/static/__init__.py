"""One layout for all batches: what a job fixes of it, how it becomes a plan, and what changes when it does not fit."""

from planner.strategies.static.joint_plan import (
    assign_batch,
    fixes_every_module,
    plan_of_layouts,
    solve_together,
    undefined_items,
    unsupported_together,
)
from planner.strategies.static.layout_change import LayoutChange, impossible_fields
from planner.strategies.static.memory_fit import MemoryFit, StageMemory, memory_fit_of_job, memory_fit_of_plan
from planner.strategies.static.static_prediction import StepTimePrediction, predict_job, predict_plan

__all__ = [
    "LayoutChange",
    "MemoryFit",
    "StageMemory",
    "StepTimePrediction",
    "assign_batch",
    "fixes_every_module",
    "impossible_fields",
    "memory_fit_of_job",
    "memory_fit_of_plan",
    "plan_of_layouts",
    "predict_job",
    "predict_plan",
    "solve_together",
    "undefined_items",
    "unsupported_together",
]
