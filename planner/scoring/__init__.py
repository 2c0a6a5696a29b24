"""The score of a plan by its own numbers alone: prices, simulated steps, memory, lower bounds with their proofs."""

from planner.scoring.bounds import BOUNDS, bounds_same_work
from planner.scoring.exact_grouping import small_enough, solve_grouping
from planner.scoring.objective_value import (
    mean_objective_value,
    objective_of,
    objective_value,
    restate_in_objective,
    sample_modules,
    sample_tokens,
    seconds_for_value,
)
from planner.scoring.pipeline_passes import ReplicaPipeline, replica_pipelines, splits_backward
from planner.scoring.plan_answer import PlanAnswer, plan_answer
from planner.scoring.plan_memory import allowed_bytes_on, exceeds_memory
from planner.scoring.read_plan import plan_at, read_plan
from planner.scoring.score import (
    OPTIMAL_GAP,
    Score,
    fullest_score,
    outcome_of,
    prediction_of,
    require_memory,
    score,
    with_score,
)

__all__ = [
    "BOUNDS",
    "OPTIMAL_GAP",
    "PlanAnswer",
    "ReplicaPipeline",
    "Score",
    "allowed_bytes_on",
    "bounds_same_work",
    "exceeds_memory",
    "fullest_score",
    "mean_objective_value",
    "objective_of",
    "objective_value",
    "outcome_of",
    "plan_answer",
    "plan_at",
    "prediction_of",
    "read_plan",
    "replica_pipelines",
    "require_memory",
    "restate_in_objective",
    "sample_modules",
    "sample_tokens",
    "score",
    "seconds_for_value",
    "small_enough",
    "solve_grouping",
    "splits_backward",
    "with_score",
]
