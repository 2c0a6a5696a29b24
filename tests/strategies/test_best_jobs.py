"""The best of all strategies on shipped and golden jobs, and on two more: no strategy alone is quicker."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner.callbacks import silent
from planner.errors import Infeasible, Unsupported
from planner.plan.launchable.launch_refusals import plan_refusals
from planner.solve_job import solve_job, solve_with
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.job import Job
from planner.specs.library import read_named, shipped_names
from planner.specs.named_files import read_cluster
from planner.strategies import STRATEGIES
from tests.static_jobs import for_software, small_cluster, static_job

GOLDEN = Path(__file__).parents[1] / "golden"
STORED = [*map(str, sorted(GOLDEN.glob("*/*/job.yaml")))]
MOST_RANKS = 1024  # of shipped jobs that every strategy solves here in minutes
TRAINED = [name for name in shipped_names(Job) if not read_named(name, Job)[0].workload.requests]
SHIPPED = [name for name in TRAINED if read_cluster(read_named(name, Job)[0].cluster)[0].size <= MOST_RANKS]
QUICK = JobOptions(effort=1)


def alone(inputs):
    """The values of the launchable plans that strategies give alone, with each way to synchronise that the job has."""
    stages = [inputs.job.layout.zero] if inputs.job.layout.zero is not None else [None, 1]
    for name in STRATEGIES:
        for zero in stages:
            layout = with_fields(inputs.job.layout, zero=zero)
            sync = "micro_batch" if zero in (None, 3) else "step"
            one = replace(inputs, job=with_fields(inputs.job, layout=layout, sync=sync))
            try:
                plan = solve_with(name, one, silent).plan
            except (Infeasible, Unsupported):
                continue
            if not any(plan_refusals(plan)):
                yield name, plan.outcome.value


def best_of(inputs):
    return solve_job(replace(inputs, job=with_fields(inputs.job, strategy="best")), silent).plan


def compare(job):
    inputs = load_job(job, replace(QUICK, within=0.0))
    best = best_of(inputs)
    found = [*alone(inputs)]
    assert found
    for name, value in found:
        assert best.outcome.value <= value * (1 + 1e-9), name
    return best


@pytest.mark.soak  # elsewhere test_best.py has a job made up
@pytest.mark.parametrize("job", [*SHIPPED, *STORED])
def test_no_strategy_alone_is_better(job):
    compare(job)


@pytest.mark.soak
def test_of_one_model_on_eight_nodes_with_nothing_else_said(tmp_path):
    best = compare(static_job(tmp_path, "llama-3-70b", "h100x64", (4096,) * 512, "", "dtype: bf16"))
    assert best.outcome.gap < 0.05


@pytest.mark.slow
def test_sequences_that_replicas_do_not_divide_go_where_the_framework_can_launch_them(tmp_path):
    """128 sequences on 24 ranks: one a rank would be quicker, and replicas of Megatron have as many sequences each."""
    cluster = small_cluster(tmp_path, "h100-80gb", 24)
    job = static_job(tmp_path, "llama-3-8b", cluster, (8192,) * 128, "", "recompute: none")
    inputs = load_job(for_software(job, "megatron"), replace(QUICK, within=0.0))
    best = best_of(inputs)
    (layout,) = best.layouts.values()
    assert 128 % (layout.dp * layout.replica * layout.micro_batch) == 0
    same_numerics = [each for each in best.alternatives if "changes numerics" not in each.because]
    quicker = [each for each in same_numerics if each.value and each.value < best.outcome.value]
    assert quicker and all(each.because.startswith("megatron cannot launch this plan") for each in quicker)
