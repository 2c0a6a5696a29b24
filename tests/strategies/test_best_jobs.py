"""The best of all strategies where what is quickest cannot be launched."""

from dataclasses import replace

import pytest

from planner.callbacks import silent
from planner.solve_job import solve_job
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from tests.static_jobs import for_software, small_cluster, static_job

QUICK = JobOptions(effort=1)


def best_of(inputs):
    return solve_job(replace(inputs, job=with_fields(inputs.job, strategy="best")), silent).plan


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
