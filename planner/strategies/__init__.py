"""Strategies as a table: each decides one thing, stands in one file, and knows no other."""

from planner.strategies.best import Candidate, best_of_candidates, candidate_inputs
from planner.strategies.entry import RefiningStrategy, Strategy, StrategyEntry
from planner.strategies.plan_drafts import data_parallel_layouts, plan_uses
from planner.strategies.solved_job import SolvedJob
from planner.strategies.table import (
    STRATEGIES,
    base_strategy,
    decides_layouts,
    refining_strategy,
    strategy_called,
    strategy_deciding,
    unsupported,
)

__all__ = [
    "STRATEGIES",
    "Candidate",
    "RefiningStrategy",
    "SolvedJob",
    "Strategy",
    "StrategyEntry",
    "base_strategy",
    "best_of_candidates",
    "candidate_inputs",
    "data_parallel_layouts",
    "decides_layouts",
    "plan_uses",
    "refining_strategy",
    "strategy_called",
    "strategy_deciding",
    "unsupported",
]
