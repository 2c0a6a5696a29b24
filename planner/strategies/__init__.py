"""Strategies by name, as strings: nothing heavy is imported for help. One decision per file; none knows another."""

from importlib import import_module
from typing import Protocol

from planner.errors import InputError
from planner.plan.model import Plan
from planner.specs.inputs import Inputs

STRATEGIES = {
    "sequence_groups": "planner.strategies.sequence_groups",
    "data_ranks": "planner.strategies.data_ranks",
    "parallel_search": "planner.strategies.parallel_search",
    "pipeline_order": "planner.strategies.pipeline_order",
}
REFINES = {
    "pipeline_order": "parallel_search"
}  # whose plan a strategy starts from: as `base`, of the job as it wants it
STATIC = (
    "parallel_search",
    "pipeline_order",
)  # one layout for all batches alike: no other way to place the same sequences


class Strategy(Protocol):
    """What a module of this package offers."""

    SUMMARY: str

    def supports(self, inputs: Inputs) -> str | None:
        """Why it can't decide this job, for a person, and behind ` | ` the fix where it knows one; None when it can."""

    def plan(self, inputs: Inputs, base: Plan | None) -> Plan:
        """The decision, with its outcome. Raises Infeasible."""


class Refining(Strategy, Protocol):
    """A strategy that starts from another one's plan."""

    def before(self, inputs: Inputs) -> Inputs:
        """The job as the other one should see it."""


def refining(name: str) -> Refining:
    """One of REFINES."""
    return import_module(STRATEGIES[name])


def strategy(name: str) -> Strategy:
    """The strategy of this name. Raises InputError listing those there are."""
    if name not in STRATEGIES:
        fix = f"one of {', '.join(STRATEGIES)}, best"
        raise InputError(f"no strategy is called `{name}`", where="strategy", fix=fix)
    return import_module(STRATEGIES[name])
