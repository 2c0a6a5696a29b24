"""How long eight ranks take from their first word to each other until a plan is read and all of its groups are made.

The plan's micro-batches pair ranks up and put them into fours in ever other ways, whatever their numbers: far more
groups than a strategy that keeps neighbours together makes. Seconds are those of the slowest rank.
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.registry import Figures
from benchmarks.small_plans import Mixed, base_plan, spread
from planner import files
from planner.launch.processes import launch
from planner.plan.group_catalogue import process_groups
from planner.plan.plan_file import Plan

RANKS, MICRO_BATCHES, REPEATS, SEED = 8, 40, 5, 0


def run(data: Path | None) -> Iterator[Figures]:
    plan = mixed_plan()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "plan.yaml"
        files.write(path, plan)
        for _ in range(REPEATS):
            read, made = zip(*launch(body, RANKS, str(path), threads=1), strict=True)
            yield {
                "ranks": RANKS,
                "groups": sum(len(ranks) > 1 for ranks in process_groups(plan)),
                "plan_seconds": round(max(read), 3),
                "groups_seconds": round(max(made), 3),
                "seconds": round(max(map(sum, zip(read, made, strict=True))), 3),
            }


def mixed_plan() -> Plan:
    chance = random.Random(SEED)
    turns = [cut(chance.sample(range(RANKS), RANKS), sizes) for sizes in ((2, 2, 2, 2), (4, 4), (4, 2, 2), (8,)) * 10]
    return spread(base_plan(RANKS), Mixed(MICRO_BATCHES, 64, turns=turns), dp=RANKS, zero=3)


def cut(ranks: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Consecutive parts of these sizes, each rising."""
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    return [sorted(ranks[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


def body(worker: Any, path: str) -> tuple[float, float]:
    """Seconds of one rank: to read the plan, which is judged legal, and for the groups."""
    import time

    import torch.distributed as dist

    from planner.launch.communication.process_groups import ProcessGroups
    from planner.launch.worker import joined_world
    from planner.pipeline import read_plan

    with joined_world(worker):
        dist.barrier()
        began = time.perf_counter()
        plan = read_plan(path)
        read = time.perf_counter()
        ProcessGroups(process_groups(plan))
        dist.barrier()
        return read - began, time.perf_counter() - read
