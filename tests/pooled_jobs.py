"""Jobs on pools for tests: whole runs of a small space of layouts, on kinds and counts that are drawn or said."""

import random
from pathlib import Path

from planner import files
from planner.callbacks import silent
from planner.pipeline import decide
from planner.pools import PoolAnswer, choose
from planner.specs.hardware.pool import Pool, PoolKind, Spot
from planner.specs.inputs import Inputs, JobOptions, load_job

KINDS = ("h100", "a100", "h200", "b200", "mi300x")
JOB = """\
format: planner.job/1
name: made-up
model: llama-3-8b
cluster: ./pool.yaml
strategy: parallel_search
objective: {objective}
workload: {{lengths: 4096, batch_rows: {rows}}}
layout: {{{fixed}}}
limits: {{{limits}}}
run: {{tokens: 1e11}}
"""
FIXED = "tp: 1, cp: 1, pp: 1, zero: 3, recompute: full, micro_batch: 1"  # of a space of one layout, solved at once


def pooled(
    folder: Path,
    kinds: tuple[PoolKind, ...],
    limits: str = "",
    fixed: str = FIXED,
    objective: str = "step_seconds",
    options: JobOptions = JobOptions(effort=1),  # noqa: B008
) -> Inputs:
    """The inputs of a run on these kinds."""
    files.write(folder / "pool.yaml", Pool(format=Pool.FORMAT, name="pool", pool=kinds))
    job = folder / "job.yaml"
    job.write_text(JOB.format(objective=objective, rows=48, fixed=fixed, limits=limits))
    return load_job(str(job), options)


def random_kinds(seed: int) -> tuple[PoolKind, ...]:
    """One to three kinds with up to three counts each, of which some may be too few for the model; some at prices of
    their own, some on the spot.
    """
    chance = random.Random(seed)
    kinds = []
    for name in chance.sample(KINDS, chance.randint(1, 3)):
        counts = tuple(sorted(chance.sample((1, 2, 4, 6, 8, 16, 24), chance.randint(1, 3))))
        price = chance.choice([None, round(chance.uniform(1.0, 9.0), 2)])
        spot = Spot(usd_per_hour=chance.uniform(0.5, 3.0), mean_hours=chance.choice([2.0, 50.0, 1000.0]))
        kinds.append(
            PoolKind(kind=name, counts=counts, usd_per_hour=price, spot=chance.choice([None, spot]), region="here")
        )
    return tuple(kinds)


def front_of(inputs: Inputs) -> PoolAnswer:
    """The whole answer."""
    return choose(inputs, decide, silent, whole_front=True)


def bills(answer: PoolAnswer) -> list[tuple[str, float, float]]:
    """The front by name, days and dollars."""
    return [(each.offer.offered.name, each.bill.days, each.bill.usd) for each in answer.front]
