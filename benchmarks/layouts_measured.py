"""Simulated against measured: twenty-five layouts of one model on two ranks of this machine, each run as it is planned.

Costs are those that `planner profile` measures here, of one layer and the ends, of the optimizer and of collectives: no
step is fitted. A step is the median of a few, whose error is simulated over measured less one; the order is Spearman's
over all of them. A micro-batch is one item for each group of ranks. Nobody measures the matrices of tensor parallelism
here: half of them is priced as half of what one rank takes for the whole, and what goes between by the collectives.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.registry import Figures
from benchmarks.simulated_measured import simulated_beside
from benchmarks.small_plans import EACH, RANKS, Work, base_plan, spread
from planner.launch.processes import launch
from planner.plan.plan_file import Plan
from planner.workflows import evidence

MODEL, STEPS = "tiny-decoder", 7


def run(data: Path | None) -> Iterator[Figures]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "profile.yaml"
        evidence.measure_profile(MODEL, evidence.ProfileSettings(RANKS, "float32"), path)
        made = plans(base_plan(profile=path))
    yield from simulated_beside(made, launch(body, RANKS, made, threads=1)[0])


def plans(base: Plan) -> dict[str, Plan]:
    """By name."""
    made = {}
    for zero in (0, 1, 3):
        for count, tokens in ((4, 512), (8, 512), (3, 1024)):
            made[f"dp 2, zero {zero}, {count} x {tokens}"] = spread(
                base, Work(count, tokens, EACH), dp=RANKS, zero=zero
            )
    for split, count, tokens in (
        ("ulysses", 4, 512), ("ulysses", 8, 1024), ("ulysses", 2, 2048), ("ring", 4, 1024), ("ring", 2, 2048)
    ):  # fmt: skip
        made[f"{split} 2, zero 3, {count} x {tokens}"] = spread(
            base, Work(count, tokens, split=split), dp=RANKS, zero=3
        )
    for order, count, tokens in (
        ("1f1b", 4, 512), ("1f1b", 12, 512), ("gpipe", 8, 512), ("zb_h1", 8, 512), ("1f1b", 4, 1024)
    ):  # fmt: skip
        made[f"pp 2, {order}, {count} x {tokens}"] = spread(base, Work(count, tokens, order=order), pp=RANKS, zero=0)
    for how in ("selective", "full"):
        made[f"dp 2, zero 1, recompute {how}, 8 x 512"] = spread(
            base, Work(8, 512, EACH), dp=RANKS, zero=1, recompute=how
        )
    for count, tokens in ((4, 512), (8, 512), (4, 1024)):
        made[f"tp 2, {count} x {tokens}"] = spread(base, Work(count, tokens), tp=RANKS, zero=0)
    work = Work(8, 512, order="interleaved")
    made["pp 2, interleaved, 8 x 512"] = spread(base, work, vpp=2, pp=RANKS, zero=0)
    return made


def body(worker: Any, plans: dict[str, Plan]) -> dict[str, float]:
    """On every rank; the first knows."""
    from planner.launch.worker import joined_world
    from planner.runtime import RunOptions
    from planner.runtime.execute.training_loop import train

    with joined_world(worker):
        runs = {name: train(worker, plan, RunOptions(steps=STEPS)) for name, plan in plans.items()}
    return {name: seconds_of(run.steps) for name, run in runs.items() if run}


def seconds_of(steps: Sequence[Any]) -> float:
    return float(median(step.seconds for step in steps))
