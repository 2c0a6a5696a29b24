"""Strategies as a table: each decides one thing, stands in one file, and knows no other.

One decision per file; no strategy imports another.
"""

from importlib import import_module
from typing import NamedTuple, Protocol

from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.specs.inputs import Inputs
from planner.strategies.best import Candidate, best_of_candidates, candidate_inputs
from planner.strategies.plan_drafts import data_parallel_layouts, plan_uses
from planner.strategies.solved_job import SolvedJob


class StrategyEntry(NamedTuple):
    """The module of a strategy.

    `refines`: the strategy from whose plan it starts, as `base`. `static`: it gives one layout for all batches, so that
    the assignment of sequences is not a decision of its own.
    """

    module: str
    refines: str = ""
    static: bool = False


STRATEGIES: dict[str, StrategyEntry] = {
    "sequence_groups": StrategyEntry("planner.strategies.sequence_groups"),
    "data_ranks": StrategyEntry("planner.strategies.data_ranks"),
    "parallel_search": StrategyEntry("planner.strategies.parallel_search", static=True),
    "modality_layout": StrategyEntry("planner.strategies.modality_layout", static=True),
    "pipeline_order": StrategyEntry("planner.strategies.pipeline_order", refines="parallel_search", static=True),
}


class Strategy(Protocol):
    """The interface of a strategy's module."""

    SUMMARY: str

    def supports(self, inputs: Inputs) -> str | None:
        """The reason why it cannot plan this job, with a fix after ` | ` where there is one; None when it can."""

    def plan(self, inputs: Inputs, base: Plan | None) -> Plan:
        """The plan with its outcome. Raises Infeasible. `base`: the plan that it refines; or of several modules, where
        each batch is decided by itself, that of an earlier batch, whose layouts it keeps.
        """


class RefiningStrategy(Strategy, Protocol):
    """A strategy that starts from another one's plan."""

    def inputs_for_base(self, inputs: Inputs) -> Inputs:
        """The job as given to the strategy that it starts from."""


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
    "base_strategy",
    "best_of_candidates",
    "candidate_inputs",
    "data_parallel_layouts",
    "is_static",
    "plan_uses",
    "refining_strategy",
    "strategy_called",
]
