"""What the table of strategies says of each: facts that `best` and others go by, in place of names."""

from typing import Literal, NamedTuple, Protocol

from planner.plan.plan_file import Plan
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Sync


class StrategyEntry(NamedTuple):
    """The module of a strategy, and what it is.

    `modules`: of how many modules it plans a model. `refines`: the strategy from whose plan it starts, as `base`.
    `static`: it gives one layout for all batches, so that the assignment of sequences is not a decision of its own.
    `leaves`: pairs of a ZeRO stage and a point of synchronisation that it leaves to be tried, each with every
    recomputation; of a strategy that decides these itself, none.
    """

    module: str
    modules: Literal["one", "several", "any"] = "any"
    refines: str = ""
    static: bool = False
    leaves: tuple[tuple[int, Sync], ...] = ()

    @property
    def searches_layouts(self) -> bool:
        """Whether it decides static layouts, from all that there are."""
        return self.static and not self.refines


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
