"""Strategies as a table: each decides one thing, stands in one file, and knows no other.

One decision per file; no strategy imports another.
"""

from importlib import import_module

from planner.errors import InputError
from planner.strategies.best import Candidate, best_of_candidates, candidate_inputs
from planner.strategies.entry import RefiningStrategy, Strategy, StrategyEntry
from planner.strategies.plan_drafts import data_parallel_layouts, plan_uses
from planner.strategies.solved_job import SolvedJob

STRATEGIES: dict[str, StrategyEntry] = {
    "sequence_groups": StrategyEntry("planner.strategies.sequence_groups", leaves=((3, "micro_batch"),)),
    "data_ranks": StrategyEntry("planner.strategies.data_ranks", leaves=((2, "step"), (1, "step"), (0, "step"))),
    "parallel_search": StrategyEntry("planner.strategies.parallel_search", "one", static=True),
    "modality_layout": StrategyEntry("planner.strategies.modality_layout", "several", static=True),
    "pipeline_order": StrategyEntry("planner.strategies.pipeline_order", "one", refines="parallel_search", static=True),
}


def is_static(name: str) -> bool:
    """Whether a plan's strategy gives one layout for all batches; False for names outside the table, as `by_hand`."""
    return name in STRATEGIES and STRATEGIES[name].static


def base_strategy(name: str) -> str:
    """The strategy that this one starts from; empty where there is none."""
    return STRATEGIES[name].refines if name in STRATEGIES else ""


def refining_strategy(name: str) -> RefiningStrategy:
    """The module of a strategy that refines another."""
    return import_module(STRATEGIES[name].module)


def strategy_called(name: str) -> Strategy:
    """The module of a strategy. Raises InputError, listing the names, where there is none."""
    if name not in STRATEGIES:
        fix = f"one of {', '.join(STRATEGIES)}, best"
        raise InputError(f"no strategy is called `{name}`", where="strategy", fix=fix)
    return import_module(STRATEGIES[name].module)


__all__ = [
    "STRATEGIES",
    "Candidate",
    "SolvedJob",
    "StrategyEntry",
    "base_strategy",
    "best_of_candidates",
    "candidate_inputs",
    "data_parallel_layouts",
    "is_static",
    "plan_uses",
    "refining_strategy",
    "strategy_called",
]
