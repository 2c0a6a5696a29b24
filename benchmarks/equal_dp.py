"""Modules apart with equal dp, tp 1 and cp 1, as MindSpeed's multimodal search has them: how long the exact choice of
cards takes, and what unequal dp, tensor parallelism and shared ranks save beside it, by simulation.
"""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from benchmarks.registry import Figures
from planner.solve_job import read_job
from planner.specs.inputs import JobOptions
from planner.strategies.modality.baseline_trial import best_trial
from planner.strategies.modality.baselines import BASELINES
from planner.strategies.modality.equal_dp_apart import ModuleApart, equal_dp_layouts
from planner.strategies.modality.joint_candidates import JointSpace
from planner.strategies.modality.joint_search import JointTrials
from planner.strategies.modality_layout import plan as plan_jointly

JOB, BASELINE = "qwen2.5-omni-7b-h100x16", "equal_dp_apart"
MODULES = (ModuleApart(0.11, 32), ModuleApart(0.05, 32), ModuleApart(0.9, 28, least=2))
CARDS, BATCH, REPEATS = 64, 256, 200


def run(data: Path | None) -> Iterator[Figures]:
    began = perf_counter()
    for _ in range(REPEATS):
        found = equal_dp_layouts(MODULES, CARDS, BATCH)
    yield {
        "modules": len(MODULES),
        "cards": CARDS,
        "ms": round(1e3 * (perf_counter() - began) / REPEATS, 4),
        "dp": found[0].dp,
        "cards_of_modules": found[0].cards,
        "published_ms": 0.13,
    }
    inputs = read_job(JOB, JobOptions())
    plan = plan_jointly(inputs, None)
    apart = best_trial(JointTrials(inputs), BASELINE, BASELINES[BASELINE](JointSpace(inputs)))
    seconds = apart.seconds if apart.plan else None
    yield {
        "job": JOB,
        "step_seconds": round(plan.outcome.value, 4),
        "equal_dp_apart_seconds": seconds and round(seconds, 4),
        "gain": seconds and round(seconds / plan.outcome.value, 3),
        "layouts": {
            name: f"{len(each.ranks)} ranks, tp {each.tp} dp {each.dp} pp {each.pp}"
            for name, each in plan.layouts.items()
        },
        "times": f"simulated, rates of {plan.uses.prices.profile}",
    }
