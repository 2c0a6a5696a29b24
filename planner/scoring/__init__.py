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
from planner.scoring.shared_devices import SharedPair, shared_pairs, shares_text
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
