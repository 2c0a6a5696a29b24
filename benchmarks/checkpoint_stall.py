"""How long training waits for a checkpoint that is written behind it, over one that is waited for, on two processes:
59 MB of weights, and 117 MB of averages.

Both take turns in the same processes, each behind a step and when nothing else is being written. The steps that run
while a checkpoint is written share the cores with it: how much longer they take is a figure of its own.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.pairs import WARM, interval
from benchmarks.registry import Figures
from benchmarks.run_overhead import planned_executor, trained_step
from benchmarks.small_plans import EACH, RANKS, Work, base_plan, spread
from planner.launch.processes import launch
from planner.plan.plan_file import Plan
from planner.specs.base import with_fields

FEWER_PAIRS = 6  # a minute or two in all
MODEL = {"layers": 4, "hidden": 512, "heads": 8, "kv_heads": 8, "ffn": 1536, "vocab": 1024}
TOKENS, STEPS_MEANWHILE = 16, 2


class Turn(NamedTuple):
    """Seconds that the slowest rank took."""

    behind: float  # to begin a checkpoint
    behind_cpu: float  # processor time of that, of the thread that trains
    waited: float  # to write one and wait for it
    waited_cpu: float  # processor time of that, of all threads
    steps: float  # of some steps while nothing is written
    steps_meanwhile: float  # of as many while a checkpoint is


def run(data: Path | None, pairs: int = FEWER_PAIRS) -> Iterator[Figures]:
    with TemporaryDirectory() as folder:
        turns, size = launch(body, RANKS, plan(), Path(folder), pairs, threads=1)[0]
    yield {
        "plan": "dp 2, zero 1",
        "ranks": RANKS,
        "pairs": len(turns),
        "checkpoint_mb": round(size / 1e6),
        **stalls(turns),
    }


def stalls(turns: Sequence[Turn]) -> Figures:
    """Medians, and the interval of that of the ratios."""
    ratios = [turn.behind / turn.waited for turn in turns]
    longer = [turn.steps_meanwhile / turn.steps for turn in turns]
    return {
        "stall_seconds": round(median(turn.behind for turn in turns), 4),
        "synchronous_seconds": round(median(turn.waited for turn in turns), 4),
        "stall_over_synchronous": round(median(ratios), 4),
        "interval": [round(1 + end, 4) for end in interval(ratios) or ()],
        "of_cpu_time": round(median(turn.behind_cpu / turn.waited_cpu for turn in turns), 4),
        "steps_meanwhile_overhead": round(median(longer) - 1, 4),
        "interval_of_steps": interval(longer),
    }


def plan() -> Plan:
    base = base_plan()
    model = with_fields(base.uses.models["llm"], **MODEL)
    base = with_fields(base, uses=with_fields(base.uses, models={"llm": model}))
    return spread(base, Work(1, TOKENS, EACH), dp=2, zero=1)


def body(worker: Any, plan: Plan, folder: Path, pairs: int) -> tuple[list[Turn], int]:
    """On every rank: turns, and bytes of a checkpoint."""
    from planner.launch.worker import joined_world
    from planner.runtime.checkpoint.saving import saving

    with joined_world(worker):
        executor = planned_executor(worker, plan)
        step = trained_step(executor, plan)
        with saving(executor, folder) as saver:
            turns = [turn(saver, step) for _ in range(WARM + pairs)][WARM:]
        size = sum(file.stat().st_size for file in folder.glob("states-*/*"))
    return turns, size


def turn(saver: Any, step: Callable[[], object]) -> Turn:
    def steps() -> None:
        for _ in range(STEPS_MEANWHILE):
            step()

    alone, _, _ = slowest(steps)
    behind, behind_cpu, _ = slowest(lambda: saver.save(1, last=False))
    meanwhile, _, _ = slowest(steps)
    saver.finish()
    step()
    waited, _, waited_cpu = slowest(lambda: (saver.save(1, last=False), saver.finish()))
    return Turn(behind, behind_cpu, waited, waited_cpu, alone, meanwhile)


def slowest(do: Callable[[], object]) -> list[float]:
    """Seconds of the slowest rank: by the clock, and processor time of the thread that trains, and of all."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    clocks = time.perf_counter, time.thread_time, time.process_time
    before = [clock() for clock in clocks]
    do()
    took = torch.tensor([clock() - begun for clock, begun in zip(clocks, before, strict=True)], dtype=torch.float64)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    seconds: list[float] = took.tolist()
    return seconds
