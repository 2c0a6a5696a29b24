"""Step time of the runtime over a hand-written torch loop that does the same work with the same groups.

Both live in the same processes, one thread each, and take turns. Ours is a whole step of a run, with its timings
gathered on the first rank. The interval is that of the median of the paired ratios (binomial, 95 %).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.by_hand import RATE, SEED, by_hand
from benchmarks.pairs import PAIRS, Took, figures, in_turns
from benchmarks.registry import Figures
from benchmarks.small_plans import BOTH, EACH, RANKS, Work, base_plan, spread
from planner.launch.processes import launch
from planner.plan.plan_file import Plan

MICRO_BATCHES, TOKENS = 8, 512


def run(data: Path | None, pairs: int = PAIRS) -> Iterator[Figures]:
    for name, took in launch(body, RANKS, plans(), pairs, threads=1)[0].items():
        yield {"plan": name, "ranks": RANKS, **figures(took, "by_hand")}


def plans() -> dict[str, Plan]:
    base = base_plan()
    apart, together = Work(MICRO_BATCHES, TOKENS, EACH), Work(MICRO_BATCHES, TOKENS, BOTH)
    return {
        "dp 2, zero 3": spread(base, apart, dp=2, zero=3),
        "dp 2, zero 1": spread(base, apart, dp=2, zero=1),
        "ulysses 2, zero 3": spread(base, together, dp=2, zero=3),
        "pp 2, 1f1b": spread(base, Work(MICRO_BATCHES, TOKENS, BOTH, order="1f1b"), pp=2, zero=0),
    }


def body(worker: Any, plans: dict[str, Plan], pairs: int) -> dict[str, list[tuple[Took, Took]]]:
    """On every rank."""
    from planner.launch.worker import joined_world

    with joined_world(worker):
        return {
            name: in_turns(planned(worker, plan), by_hand(worker, plan).step, pairs) for name, plan in plans.items()
        }


def planned(worker: Any, plan: Plan) -> Callable[[], object]:
    """A step of the runtime, as `planner run` takes it."""
    return trained_step(planned_executor(worker, plan), plan)


def planned_executor(worker: Any, plan: Plan) -> Any:
    """This rank of a run."""
    from planner.runtime import RunOptions, TrainingOptions
    from planner.runtime.execute.training_loop import prepare_executor

    return prepare_executor(worker, plan, RunOptions(steps=1, seed=SEED, training=TrainingOptions(RATE)))


def trained_step(executor: Any, plan: Plan, keep_records: bool = True) -> Callable[[], object]:
    """A step of a run on this rank."""
    from planner.plan.tasks.expand import expand
    from planner.runtime.execute.step_source import StepTasks
    from planner.runtime.execute.training_loop import train_step

    coming = StepTasks(expand(plan))
    return lambda: train_step(executor, coming, None, 1, keep_records)
