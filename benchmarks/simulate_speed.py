"""Tasks per second through expansion and the event engine."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.registry import Figures
from planner import pipeline
from planner.costs.pricing import pricing_of
from planner.plan.expand import expand
from planner.simulate import simulate
from planner.specs.inputs import Options

REPEATS = 5


def run(data: Path | None) -> Iterator[Figures]:
    for job in ("flexsp-gpt-7b-a100x64", "llama-3-8b-h100x64"):
        plan = pipeline.solve(job, Options()).plan
        tasks, expanding, simulating = expand(plan), [], []
        for _ in range(REPEATS):
            start = perf_counter()
            expand(plan)
            middle = perf_counter()
            simulate(tasks, pricing_of(plan).price, plan.size)
            expanding.append(middle - start)
            simulating.append(perf_counter() - middle)
        yield {
            "job": job,
            "tasks": len(tasks),
            "ranks": plan.size,
            "expand_tasks_per_second": round(len(tasks) / median(expanding)),
            "simulate_tasks_per_second": round(len(tasks) / median(simulating)),
        }
