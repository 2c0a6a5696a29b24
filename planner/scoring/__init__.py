"""Scores a plan from its own numbers: prices, simulated steps, memory, lower bounds with proofs."""

from planner.scoring.bounds.exact_grouping import small_enough, solve_grouping
from planner.scoring.bounds.pipeline_passes import ReplicaPipeline, replica_pipelines, splits_backward
from planner.scoring.bounds.plan_space import least_work, plan_space_seconds
from planner.scoring.bounds.step_bounds import BOUNDS, SPACE, bounds_same_work
from planner.scoring.expected_seconds import least_expected, passed_over, plan_doubt
from planner.scoring.expert_answer import ExpertAnswer, expert_answers
from planner.scoring.gap_use import GapUse, gap_use
from planner.scoring.host_memory import HostMemory
from planner.scoring.loader_score import loader_bound_steps, step_loading_seconds, with_loader
from planner.scoring.nearest_run import described_run, interval_spread, nearest_run, nearest_text, nearest_to
from planner.scoring.objective_value import (
    BESIDE,
    mean_objective_value,
    objective_of,
    objective_value,
    restate_in_objective,
    sample_modules,
    sample_tokens,
    seconds_for_value,
)
from planner.scoring.offload_check import with_hidden_offload
from planner.scoring.plan_answer import PlanAnswer, plan_answer, step_bounds, throughput
from planner.scoring.plan_memory import PlanMemory, allowed_bytes_on, exceeds_memory
from planner.scoring.possible import answer_about, require_possible
from planner.scoring.score import (
    OPTIMAL_GAP,
    Score,
    bounded_value,
    fullest_host,
    fullest_score,
    in_memory,
    outcome_of,
    over_joint_space,
    over_space,
    prediction_of,
    require_memory,
    require_memory_in_order,
    score,
    states_error,
    task_seconds,
    with_bound,
    with_score,
)
from planner.scoring.shared_devices import SharedPair, shared_modules, shared_pairs, shares_text
from planner.scoring.statements import (
    computed_by_hand,
    false_statements,
    read_plan,
    read_scored,
    scored_at,
    with_bound_digest,
)
from planner.scoring.step_simulation import step_seconds
from planner.scoring.tried_plan import TriedPlan
from planner.scoring.undecided_order import (
    SETTLING_ROUNDS,
    SETTLING_STEPS,
    UndecidedOrder,
    ranked_alternatives,
    tie_spread,
    undecided_order,
    unranked_alternatives,
)

__all__ = [
    "BESIDE",
    "BOUNDS",
    "OPTIMAL_GAP",
    "SETTLING_ROUNDS",
    "SETTLING_STEPS",
    "SPACE",
    "ExpertAnswer",
    "GapUse",
    "HostMemory",
    "PlanAnswer",
    "PlanMemory",
    "ReplicaPipeline",
    "Score",
    "SharedPair",
    "TriedPlan",
    "UndecidedOrder",
    "allowed_bytes_on",
    "answer_about",
    "bounded_value",
    "bounds_same_work",
    "computed_by_hand",
    "described_run",
    "exceeds_memory",
    "expert_answers",
    "false_statements",
    "fullest_host",
    "fullest_score",
    "gap_use",
    "in_memory",
    "interval_spread",
    "least_expected",
    "least_work",
    "loader_bound_steps",
    "mean_objective_value",
    "nearest_run",
    "nearest_text",
    "nearest_to",
    "objective_of",
    "objective_value",
    "outcome_of",
    "over_joint_space",
    "over_space",
    "passed_over",
    "plan_answer",
    "plan_doubt",
    "plan_space_seconds",
    "prediction_of",
    "ranked_alternatives",
    "read_plan",
    "read_scored",
    "replica_pipelines",
    "require_memory",
    "require_memory_in_order",
    "require_possible",
    "restate_in_objective",
    "sample_modules",
    "sample_tokens",
    "score",
    "scored_at",
    "seconds_for_value",
    "shared_modules",
    "shared_pairs",
    "shares_text",
    "small_enough",
    "solve_grouping",
    "splits_backward",
    "states_error",
    "step_bounds",
    "step_loading_seconds",
    "step_seconds",
    "task_seconds",
    "throughput",
    "tie_spread",
    "undecided_order",
    "unranked_alternatives",
    "with_bound",
    "with_bound_digest",
    "with_hidden_offload",
    "with_loader",
    "with_score",
]
