"""The table of strategies: what each decides and needs, by which `best` and everybody else goes in place of names."""

from importlib import import_module
from typing import get_args

from planner.errors import InputError
from planner.plan.plan_file import Decision, PlanOrigin
from planner.specs.inputs import Inputs
from planner.strategies.entry import RefiningStrategy, Strategy, StrategyEntry
from planner.units import plural

BEST = "best"  # in place of a strategy: the best plan of all
DECISIONS: tuple[Decision, ...] = get_args(Decision)
STRATEGIES: dict[str, StrategyEntry] = {
    "sequence_groups": StrategyEntry(
        "planner.strategies.sequence_groups", decides=("groups", "samples"), leaves=((3, "micro_batch"),)
    ),
    "data_ranks": StrategyEntry(
        "planner.strategies.data_ranks",
        decides=("groups", "samples"),
        leaves=((2, "step"), (1, "step"), (0, "step")),
    ),
    "parallel_search": StrategyEntry(
        "planner.strategies.parallel_search",
        decides=("layouts", "samples"),
        modules="one",
        batches="one",
    ),
    "modality_layout": StrategyEntry(
        "planner.strategies.modality_layout", decides=("layouts", "ranks", "samples"), modules="several"
    ),
    "task_waves": StrategyEntry(
        "planner.strategies.task_waves",
        decides=("layouts", "ranks", "groups", "samples"),
        kinds="one",
        losses="several",
    ),
    "pipeline_order": StrategyEntry(
        "planner.strategies.pipeline_order", decides=("order",), modules="one", refines="parallel_search"
    ),
    "encoder_bubbles": StrategyEntry(
        "planner.strategies.encoder_bubbles",
        decides=("order",),
        modules="several",
        kinds="one",
        batches="one",
        refines="modality_layout",
    ),
    "spatial_sharing": StrategyEntry(
        "planner.strategies.spatial_sharing",
        decides=("shares",),
        modules="several",
        kinds="one",
        batches="one",
        refines="modality_layout",
    ),
    "sparse_tables": StrategyEntry(
        "planner.strategies.sparse_tables",
        decides=("tables",),
        modules="one",
        kinds="one",
        batches="one",
        refines="data_ranks",
    ),
}


def strategy_called(name: str) -> Strategy:
    """The module of a strategy. Raises InputError, listing the names, where there is none."""
    if name not in STRATEGIES:
        fix = f"one of {', '.join(STRATEGIES)}, {BEST}"
        raise InputError(f"no strategy is called `{name}`", where="strategy", fix=fix)
    return import_module(STRATEGIES[name].module)


def refining_strategy(name: str) -> RefiningStrategy:
    """The module of a strategy that refines another's plan."""
    return import_module(STRATEGIES[name].module)


def unsupported(name: str, inputs: Inputs) -> str | None:
    """Why a strategy cannot plan a job, by its facts and then by itself, with a fix after ` | ` where there is one;
    None where it can. Raises InputError where there is no such strategy.
    """
    strategy = strategy_called(name)
    return STRATEGIES[name].unmet(name, inputs) or strategy.supports(inputs)


def strategy_deciding(decision: Decision, modules: int) -> str:
    """The first strategy of the table that decides this by itself, for a model of so many modules. Raises InputError
    where there is none.
    """
    able = (name for name, entry in STRATEGIES.items() if entry.takes(modules) and not entry.refines)
    found = next((name for name in able if decision in STRATEGIES[name].decides), None)
    if found is None:
        what = f"no strategy decides {decision} of {plural(modules, 'module')} by itself"
        raise InputError(what, where="strategy", fix="refine a strategy, by its name")
    return found


def decides_layouts(name: str) -> bool:
    """Whether a strategy gives one layout for all batches, by itself or by what it refines."""
    return any("layouts" in decided_by(name, modules) for modules in (1, 2))


def base_strategy(name: str, modules: int) -> str:
    """The strategy from whose plan this one starts: the one that it refines, or the first that decides what it
    refines; empty where it starts from none.
    """
    refined = STRATEGIES[name].refines if name in STRATEGIES else ""
    decision = next((each for each in DECISIONS if each == refined), None)
    return strategy_deciding(decision, modules) if decision else refined


def decided_by(name: str, modules: int) -> dict[Decision, str]:
    """What a strategy and those that it refines decide, each by which; nothing for a name outside the table."""
    if name not in STRATEGIES:
        return {}
    base = base_strategy(name, modules)
    return {**(decided_by(base, modules) if base else {}), **dict.fromkeys(STRATEGIES[name].decides, name)}


def solving_strategy(made: PlanOrigin) -> str:
    """The strategy that solves a plan's job again: its own; of an imported order, whichever decided the layouts."""
    return made.strategy if made.strategy in STRATEGIES else made.decided.get("layouts", made.strategy)
