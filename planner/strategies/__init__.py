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
}
STATIC = ("parallel_search",)  # one layout for all batches alike: no other way to place the same sequences


class Strategy(Protocol):
    """What a module of this package offers."""

    SUMMARY: str

    def supports(self, inputs: Inputs) -> str | None:
        """Why it can't decide this job, for a person; None when it can."""

    def plan(self, inputs: Inputs, base: Plan | None) -> Plan:
        """The decision, with its outcome. Raises Infeasible."""


def strategy(name: str) -> Strategy:
    """The strategy of this name. Raises InputError listing those there are."""
    if name not in STRATEGIES:
        fix = f"one of {', '.join(STRATEGIES)}, best"
        raise InputError(f"no strategy is called `{name}`", where="strategy", fix=fix)
    return import_module(STRATEGIES[name])
