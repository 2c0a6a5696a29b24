"""What the table of strategies says of each: facts that `best` and others go by, in place of names."""

from typing import Literal, NamedTuple, Protocol

from planner.plan.plan_file import Decision, Plan
from planner.specs.hardware.cluster import rank_kinds
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Sync


class StrategyEntry(NamedTuple):
    """The module of a strategy, and what it is.

    `decides`: what of a plan. `modules`: of how many modules it plans a model; `kinds`: of ranks, on how many it places
    one; `batches`: how many it plans at once or one after another. `refines`: the strategy from whose plan it starts,
    as `base`, or a decision: it starts from the plan of whoever decides that. `leaves`: pairs of a ZeRO stage and a
    point of synchronisation that it leaves to be tried, each with every recomputation; of a strategy that decides these
    itself, none. `losses`: of a model whose modules learn one task, or several.
    """

    module: str
    decides: tuple[Decision, ...]
    modules: Literal["one", "several", "any"] = "any"
    kinds: Literal["one", "any"] = "any"
    batches: Literal["one", "any"] = "any"
    refines: str = ""
    leaves: tuple[tuple[int, Sync], ...] = ()
    losses: Literal["one", "several"] = "one"

    @property
    def searches_layouts(self) -> bool:
        """Whether it decides static layouts, one for all batches, from all that there are."""
        return "layouts" in self.decides and not self.refines

    def takes(self, modules: int) -> bool:
        """Whether it plans a model of so many modules."""
        return self.modules in ("any", "one" if modules == 1 else "several")

    def unmet(self, name: str, inputs: Inputs) -> str | None:
        """What it needs and a job does not have, with a fix after ` | ` where there is one; `name`: its own."""
        if inputs.model.tasks and self.losses == "one":
            return several_losses(inputs, name)
        if not self.takes(len(inputs.model.modules)):
            return only_one_module(inputs, name) if self.modules == "one" else only_several_modules(name)
        if self.kinds == "one" and len(rank_kinds(inputs.cluster)) > 1:
            return f"{name} places a module on ranks of one kind"
        if inputs.tables and "tables" not in self.decides:
            return (
                f"{name} places no embedding tables, and they would be left out of the plan | strategy: sparse_tables"
            )
        if self.batches == "one" and len(inputs.batches) > 1:
            return f"{name} decides the layout from one batch | solve it with --batches 1"
        return None


def several_losses(inputs: Inputs, name: str) -> str:
    """The reason why a strategy for one loss cannot plan a model of several tasks."""
    what = f"{name} plans one loss, and {inputs.model.name} has {len(inputs.model.tasks)} tasks"
    return f"{what} | strategy: task_waves"


def only_one_module(inputs: Inputs, name: str) -> str:
    """The reason why a strategy for one module cannot plan a model of several."""
    others = " and ".join(f"`{module}`" for module in inputs.model.modules if module != inputs.module)
    what = f"{name} plans one module, and {others} would be left out of the plan, of its memory and of its bound"
    return f"{what} | fix the layout of each under fix.layouts, or plan a model of `{inputs.module}` alone"


def only_several_modules(name: str) -> str:
    """The reason why a strategy for encoders beside an LLM cannot plan a model of one module."""
    return f"{name} plans encoders beside an LLM, and the model has one module | strategy: parallel_search"


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
