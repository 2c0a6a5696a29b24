"""What boards and records cost: a step of the runtime over the same step without them, of the same weights, in turns.

Left out are what tells the launcher which task a rank is at, marks before and after tasks and collectives, and the
records made of them, which travel to the first rank. Loss and seconds of the step are known both ways.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.pairs import PAIRS, Took, figures, in_turns
from benchmarks.registry import Figures
from benchmarks.run_overhead import planned_executor, trained_step
from benchmarks.small_plans import EACH, RANKS, Work, base_plan, spread
from planner.launch.processes import launch
from planner.plan.plan_file import Plan

MICRO_BATCHES, TOKENS = 4, 256
STAGES = 0, 3  # of ZeRO: fewest and most collectives


def run(data: Path | None, pairs: int = PAIRS) -> Iterator[Figures]:
    base = base_plan()
    for zero in STAGES:
        plan = spread(base, Work(MICRO_BATCHES, TOKENS, EACH), dp=RANKS, zero=zero)
        took = launch(body, RANKS, plan, pairs, threads=1)[0]
        yield {"plan": f"dp {RANKS}, zero {zero}", "ranks": RANKS, **figures(took, "unrecorded")}


def body(worker: Any, plan: Plan, pairs: int) -> list[tuple[Took, Took]]:
    """On every rank."""
    from planner.launch.worker import joined_world

    with joined_world(worker):
        executor = planned_executor(worker, plan)
        return in_turns(trained_step(executor, plan), unrecorded_step(executor, plan), pairs)


def unrecorded_step(executor: Any, plan: Plan) -> Callable[[], None]:
    """A step of the same executor, of which nothing is recorded."""
    from planner.runtime.execute import task_executor
    from planner.runtime.measure.step_clock import StepClock

    step = trained_step(executor, plan, keep_records=False)
    silent = replace(executor.worker, send=lambda kind, value: None)

    def run_task(task: Any) -> None:
        for source in executor.order.shared.get(task.id, ()):
            executor.local.channels.begin_with(source)
        executor.handlers[task.phase](task)

    def unrecorded() -> None:
        with (
            swapped(executor, run=run_task, worker=silent),
            swapped(task_executor, task_spans=lambda *_: (), sent_by_kind=lambda _: {}),
            swapped(StepClock, record_collective=lambda *_: nullcontext()),
        ):
            step()

    return unrecorded


@contextmanager
def swapped(of: Any, **values: Any) -> Iterator[None]:
    """These attributes have other values meanwhile."""
    before = {name: getattr(of, name) for name in values}
    for name, value in values.items():
        setattr(of, name, value)
    yield
    for name, value in before.items():
        setattr(of, name, value)
