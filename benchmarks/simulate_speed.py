"""The event engine's pace: the clock alone, compiled and in Python, and whole plans from tasks to timeline.

Seconds are the processor's, medians of several runs. The clock's activities are random ones on 64 ranks: each waits for
a recent one; 30 % are on lanes of their own, as transfers are, and 28 % hold a quarter of their lane.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import process_time

from benchmarks.registry import Figures
from planner import pipeline
from planner.costs.pricing import pricing_of
from planner.plan.tasks.expand import expand
from planner.simulate import clock, compiled_clock, simulate
from planner.simulate.activities import Activities, ActivityBuilder
from planner.specs.inputs import JobOptions

REPEATS = 5
ACTIVITIES, RANKS = 100_000, 64


def run(data: Path | None) -> Iterator[Figures]:
    yield clock_figures(many(ACTIVITIES))
    for job in ("flexsp-gpt-7b-a100x64", "llama-3-8b-h100x64"):
        plan = pipeline.solve(job, JobOptions()).plan
        tasks = expand(plan)
        yield {
            "job": job,
            "tasks": len(tasks),
            "ranks": plan.size,
            "expand_tasks_per_second": round(len(tasks) / taken(lambda plan=plan: expand(plan))),
            "simulate_tasks_per_second": round(
                len(tasks) / taken(lambda plan=plan, tasks=tasks: simulate(tasks, pricing_of(plan).price, plan.size))
            ),
        }


def clock_figures(activities: Activities) -> Figures:
    """Activities a second; how many of them share a lane."""
    figures: Figures = {
        "activities": activities.count,
        "on_shared_lanes": round(float((activities.share < 1).mean()), 3),
        "reference_per_second": round(activities.count / taken(lambda: clock.run_in_python(activities), 1)),
    }
    library = compiled_clock.LIB
    if library:
        compiled = taken(lambda: compiled_clock.run_compiled(library, activities))
        figures["native_per_second"] = round(activities.count / compiled)
        figures["native_checked_per_second"] = round(
            activities.count / taken(lambda: compiled_clock.run_activities(activities))
        )
    return figures


def many(count: int) -> Activities:
    chance, built = random.Random(0), ActivityBuilder()
    compute, comm = ([built.add_lane() for _ in range(RANKS)] for _ in range(2))
    for i in range(count):
        rank, what = chance.randrange(RANKS), chance.random()
        after = [i - chance.randint(1, min(i, 200))] if i else []
        if what < 0.30:
            built.add(chance.random() * 1e-3, [comm[rank]], after)
        elif what < 0.58:
            built.add(chance.random() * 1e-3, [compute[rank]], after, share=0.25, sharer=chance.randrange(8))
        else:
            built.add(chance.random() * 1e-3, [compute[rank]], after)
    return built.build()


def taken(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median seconds of the processor."""
    seconds = []
    for _ in range(repeats):
        start = process_time()
        work()
        seconds.append(process_time() - start)
    return median(seconds)
