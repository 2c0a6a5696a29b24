"""Strategies as a table, their modules as strings: nothing heavy is imported for help.

One decision per file; none knows another.
"""

from importlib import import_module
from typing import NamedTuple, Protocol

from planner.errors import InputError
from planner.plan.model import Plan
from planner.specs.inputs import Inputs


class Listed(NamedTuple):
    """Where a strategy is.

    `refines`: whose plan it starts from, as `base`, of the job as it wants it. `static`: it gives one layout for all
    batches alike, so that there is no other way to place the same sequences.
    """

    module: str
    refines: str = ""
    static: bool = False


STRATEGIES: dict[str, Listed] = {
    "sequence_groups": Listed("planner.strategies.sequence_groups"),
    "data_ranks": Listed("planner.strategies.data_ranks"),
    "parallel_search": Listed("planner.strategies.parallel_search", static=True),
    "pipeline_order": Listed("planner.strategies.pipeline_order", refines="parallel_search", static=True),
}


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


def is_static(name: str) -> bool:
    """Whether a plan's strategy, which may be a person, gives one layout for all batches."""
    return name in STRATEGIES and STRATEGIES[name].static


def refined(name: str) -> str:
    """The strategy that this one starts from; empty where it starts from nothing."""
    return STRATEGIES[name].refines if name in STRATEGIES else ""


def refining(name: str) -> Refining:
    """One that refines another."""
    return import_module(STRATEGIES[name].module)


def strategy(name: str) -> Strategy:
    """The strategy of this name. Raises InputError listing those there are."""
    if name not in STRATEGIES:
        fix = f"one of {', '.join(STRATEGIES)}, best"
        raise InputError(f"no strategy is called `{name}`", where="strategy", fix=fix)
    return import_module(STRATEGIES[name].module)
