"""A static plan of 12,288 ranks (175 B, tp 8 · pp 8 · vpp 6 · dp 192): seconds from its file to its timeline.

The 192 replicas do all alike, so one of them is expanded and simulated (planner/plan/mesh/identical_groups.py).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from benchmarks.gpt_175b import job
from benchmarks.registry import Figures
from planner import files, pipeline
from planner.costs.pricing import pricing_of
from planner.plan.legal.plan_laws import require_legal
from planner.plan.mesh.identical_groups import identical_groups
from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import expand
from planner.scoring.score import score
from planner.simulate import simulate
from planner.simulate.compiled_clock import run_activities as run_clock
from planner.simulate.engine import task_activities
from planner.specs.inputs import JobOptions

RANKS, REPLICAS, REPEATS = 12288, 192, 3


def run(data: Path | None) -> Iterator[Figures]:
    for micro_batches in (32, 64):
        with TemporaryDirectory() as folder:
            yield figures(Path(folder), micro_batches)


def figures(folder: Path, micro_batches: int) -> Figures:
    solving, plan = timed(
        lambda: pipeline.solve(job(folder, RANKS, REPLICAS * micro_batches), JobOptions()).plan, repeats=1
    )
    path = folder / "plan.yaml"
    files.write_text(path, files.dump(plan))
    reading, plan = timed(lambda: files.read(path, Plan), repeats=1)
    legal, _ = timed(lambda: require_legal(plan, "plan.yaml"))
    alike, others = timed(lambda: identical_groups(plan, 0))
    expanding, tasks = timed(lambda: expand(plan, 0, others.ranks))
    pricing, costs = timed(lambda: priced(plan, tasks))
    activities = task_activities(tasks, costs)
    clock, _ = timed(lambda: run_clock(activities))
    simulating, timeline = timed(lambda: simulate(tasks, pricing_of(plan).price, plan.size, others))
    scoring, _ = timed(lambda: score(plan))
    return {
        "ranks": plan.size,
        "micro_batches_of_a_replica": micro_batches,
        "ranks_simulated": plan.size - len(timeline.representative_rank),
        "tasks": len(tasks),
        "step_seconds_simulated": round(timeline.step_seconds, 4),
        "cpu_seconds": {
            "solve": round(solving, 3),
            "read_file": round(reading, 3),
            "legal": round(legal, 3),
            "alike": round(alike, 3),
            "expand": round(expanding, 3),
            "price": round(pricing, 3),
            "clock": round(clock, 4),
            "simulate": round(simulating, 3),
            "score": round(scoring, 3),  # expand, price, simulate, memory, bound
            "verify": round(legal + scoring, 3),  # what `pipeline.verify` does with the plan that was read
        },
        "plan_file_mib": round(path.stat().st_size / 2**20, 2),
    }


def priced(plan: Plan, tasks: Any) -> list[float]:
    price = pricing_of(plan).price
    return [price(task).value for task in tasks]


def timed(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    """Median seconds of the processor, and what was made."""
    seconds = []
    for _ in range(repeats):
        start = process_time()
        made = work()
        seconds.append(process_time() - start)
    return median(seconds), made
