"""What boards and records cost: a step of the runtime over the same step without them, of the same weights, in turns.

Left out are what tells the launcher which task a rank is at, marks before and after tasks and collectives, and the
records made of them, which travel to the first rank. Loss and seconds of the step are known both ways.

Of steps that take long that is lost in what repeats differ by, so it is timed by itself as well: processor time of the
first rank for each of its tasks, of which the work is left out.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.pairs import PAIRS, Took, figures, in_turns
from benchmarks.registry import Figures
from benchmarks.run_overhead import planned_executor, trained_step
from benchmarks.small_plans import EACH, RANKS, Work, base_plan, spread
from planner.launch.processes import launch
from planner.plan.plan_file import Plan
from planner.units import US

MICRO_BATCHES, TOKENS = 4, 256
STAGES = 0, 3  # of ZeRO: fewest and most collectives
REPEATS = 300  # of recording tasks that do nothing


def run(data: Path | None, pairs: int = PAIRS) -> Iterator[Figures]:
    base = base_plan()
    for zero in STAGES:
        plan = spread(base, Work(MICRO_BATCHES, TOKENS, EACH), dp=RANKS, zero=zero)
        took, alone = launch(body, RANKS, plan, pairs, threads=1)[0]
        yield {
            "plan": f"dp {RANKS}, zero {zero}",
            "ranks": RANKS,
            **figures(took, "unrecorded"),
            "microseconds_a_task": round(alone / US, 1),
        }


def body(worker: Any, plan: Plan, pairs: int) -> tuple[list[tuple[Took, Took]], float]:
    """On every rank: pairs of steps, and seconds of recording one task."""
    from planner.launch.worker import joined_world

    with joined_world(worker):
        executor = planned_executor(worker, plan)
        took = in_turns(trained_step(executor, plan), unrecorded_step(executor, plan), pairs)
        return took, recording_seconds(executor, plan)


def recording_seconds(executor: Any, plan: Plan) -> float:
    """Of one task that does nothing: on its rank, and on the first rank for what all of them send."""
    from planner.launch import SentBytes
    from planner.plan.tasks.expand import expand
    from planner.runtime.measure.task_records import TaskSpan, sent_by_kind, task_records, task_spans

    rank = executor.worker.rank
    own = [task for task in expand(plan) if rank in task.ranks and task.phase in ("F", "B", "update")]

    def record() -> None:
        done = [executor.run(task) for task in own]
        sent = msgspec.msgpack.encode((tuple(task_spans(done, [], executor.clock)), sent_by_kind(done)))
        kind = tuple[tuple[TaskSpan, ...], SentBytes]
        list(task_records([msgspec.msgpack.decode(sent, type=kind)[0] for _ in range(RANKS)]))

    with swapped(executor, handlers=dict.fromkeys(executor.handlers, lambda task: None)):
        return min(thread_seconds(record) for _ in range(REPEATS)) / len(own)


def thread_seconds(do: Callable[[], object]) -> float:
    begun = time.thread_time()
    do()
    return time.thread_time() - begun


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
