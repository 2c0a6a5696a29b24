"""Four ranks of two speeds on this machine: steps of replicas with equal shares, and with shares as each is quick.

One rank has a processor to itself, three have another together, which gives each a third of it. The unequal shares give
all the same to do: three times as many micro-batches on the first rank. Expected is the ratio of the slowest ranks'
micro-batches alone. Both train in the same world, one after the other, and again: on a machine without other work, of
which a processor would have its share.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.pairs import PAIRS
from benchmarks.registry import Figures
from benchmarks.small_plans import Mixed, base_plan, spread
from planner.launch.processes import launch
from planner.plan.plan_file import Plan

RANKS, TOKENS, EQUAL, TURNS, SEED = 4, 128, 6, 2, 5
QUICK, SLOW = 3 * RANKS, RANKS  # micro-batches of the first rank, and of each other: as many in all as equal ones


def run(data: Path | None, pairs: int = PAIRS) -> Iterator[Figures]:
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        return
    plans = shares((QUICK, *(SLOW,) * (RANKS - 1))), shares((EQUAL,) * RANKS)
    unequal, equal = launch(body, RANKS, plans, pairs, threads=1)[0]
    ratio = median(unequal) / median(equal)
    yield {
        "plan": "dp 4, zero 1", "ranks": RANKS, "steps": len(equal), "equal_s": median(equal),
        "unequal_s": median(unequal), "ratio": ratio, "expected": SLOW / EQUAL,
    }  # fmt: skip


def shares(counts: tuple[int, ...]) -> Plan:
    """Replicas of one rank each with so many micro-batches of one item."""
    turns = [[(rank,) for rank, own in enumerate(counts) if number < own] for number in range(max(counts))]
    return spread(base_plan(RANKS), Mixed(len(turns), TOKENS, turns=turns), dp=RANKS, zero=1)


def body(worker: Any, plans: tuple[Plan, Plan], steps: int) -> list[list[float]]:
    """On every rank; on the first one seconds of the steps of each plan."""
    from planner.launch.worker import joined_world
    from planner.runtime import RunOptions
    from planner.runtime.execute.training_loop import train

    first, second = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {first if worker.rank == 0 else second})
    took: list[list[float]] = [[], []]
    with joined_world(worker):
        for _ in range(TURNS):
            for plan, seconds in zip(plans, took, strict=True):
                result = train(worker, plan, RunOptions(steps=1 + steps // TURNS, seed=SEED))
                seconds += [step.seconds for step in result.steps[1:]] if result else []
    return took
