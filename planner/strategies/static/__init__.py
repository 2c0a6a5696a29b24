"""Layouts for all batches, of each module: what a job fixes, how they become a plan, and what changes if none fits."""

from planner.strategies.static.changed_layouts import changed_layouts, fixing, with_asked
from planner.strategies.static.infeasible_layout import impossible_fields
from planner.strategies.static.layouts_plan import (
    AS_FIXED,
    EstimatedDraft,
    assign_batch,
    draft_of_layouts,
    drafts_of_batch,
    estimated_draft,
    first_that_fits,
    fitting_seconds,
    plan_of_layouts,
    quicker_assignment,
    undefined_items,
    unsupported_together,
)
from planner.strategies.static.memory_fit import MemoryFit, StageMemory, memory_fit_of_job, memory_fit_of_plan
from planner.strategies.static.nearest_change import FieldChange
from planner.strategies.static.static_prediction import StepTimePrediction, predict_job, predict_plan
from planner.strategies.static.tried_change import fitting_change, solve_fixed
