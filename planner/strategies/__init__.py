"""Strategies as a table: each makes its decisions in a file of its name, and knows no other."""

from planner.strategies.best import Candidate, best_of_candidates, candidate_inputs
from planner.strategies.entry import StrategyEntry
from planner.strategies.loader_stages import DividedLoader, divide_loader
from planner.strategies.plan_drafts import data_parallel_layouts, plan_uses
from planner.strategies.solved_job import SolvedJob
from planner.strategies.table import (
    BEST,
    STRATEGIES,
    base_strategy,
    decided_by,
    decides_layouts,
    refining_strategy,
    solving_strategy,
    strategy_called,
    strategy_deciding,
    unsupported,
)
