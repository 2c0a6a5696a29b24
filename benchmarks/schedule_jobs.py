"""How quick FIFO with backfilling is on 1,000 GPUs, and what policies make of Gavel's 100 jobs.

Random jobs: 80 % ask for one GPU, 1 % for 32; lengths are lognormal. Load: GPU-seconds asked for over those there are.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import process_time

from benchmarks.registry import Figures
from planner.policies import schedule_jobs
from planner.specs.cluster_jobs.actions_file import PolicyChoice
from planner.specs.cluster_jobs.jobs import ClusterJob
from planner.specs.cluster_jobs.read_jobs import read_fleet
from planner.workflows.scheduling import ClusterQuestion, bound_of, trace_jobs

JOBS, GPUS = 100_000, 1_000
COUNTS = {1: 0.80, 2: 0.10, 4: 0.05, 8: 0.04, 32: 0.01}
MEDIAN_SECONDS, SPREAD = 1_800.0, 1.4
GAVEL = (
    {"order": "fifo"},
    {"order": "srtf"},
    {"order": "srtf", "preempt": True},
    {"order": "srtf", "place": "joint", "preempt": True},
    {"order": "las", "preempt": True},
    {"order": "marginal_gain"},
    {"order": "drf"},
    {"order": "makespan"},
    {"order": "max_min"},
    {"order": "fifo", "backfill": False, "rounds": "gavel"},
    {"order": "makespan", "rounds": "gavel"},
    {"order": "max_min", "rounds": "gavel"},
)


def run(data: Path | None) -> Iterator[Figures]:
    for load in (0.9, 1.3):
        jobs, fleet = many(load), read_fleet("", f"{GPUS}xa100")
        start = process_time()
        outcome = schedule_jobs(jobs, fleet, PolicyChoice()).outcome
        seconds = round(process_time() - start, 1)
        yield {"jobs": JOBS, "gpus": GPUS, "load": load, "seconds": seconds, "in_use": round(outcome.utilisation, 3)}
    if data:
        yield from gavel_figures(data / "cluster")


def many(load: float) -> list[ClusterJob]:
    """Jobs that come at random at a load."""
    draw, jobs, submit = Random(0), list[ClusterJob](), 0.0
    lengths = [draw.lognormvariate(0, SPREAD) * MEDIAN_SECONDS for _ in range(JOBS)]
    counts = draw.choices([*COUNTS], [*COUNTS.values()], k=JOBS)
    every = sum(count * length for count, length in zip(counts, lengths, strict=True)) / JOBS / GPUS / load
    for number, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        submit += draw.expovariate(1 / every)
        jobs.append(ClusterJob(id=str(number), submit_s=submit, gpus=count, seconds={"a100": {count: length}}))
    return jobs


def gavel_figures(folder: Path) -> Iterator[Figures]:
    fleet = read_fleet("", "8xv100,16xp100,24xk80")
    table = folder / "gavel_throughputs.csv.gz"
    jobs, _ = trace_jobs(ClusterQuestion(folder / "gavel_makespan_100jobs.csv", throughputs=table), fleet)
    yield {"trace": "gavel_makespan_100jobs", "bound_s": round(bound_of(jobs, fleet))}
    for fields in GAVEL:
        outcome = schedule_jobs(jobs, fleet, PolicyChoice(**fields)).outcome
        seconds = {name: round(getattr(outcome, name)) for name in ("makespan_s", "mean_completion_s")}
        yield {"policy": " ".join(map(str, fields.values())), **seconds, "moves": outcome.moves}
