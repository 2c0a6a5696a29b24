"""`strategy: best` gives the best of its alternatives, and records what the others give."""

import re

import pytest

from planner import pipeline
from planner.errors import Infeasible, InputError
from planner.specs.inputs import JobOptions
from tests.static_jobs import small_cluster

JOB = """\
format: planner.job/1
name: open
model: tiny-decoder
cluster: cpu-4
profile: cpu
strategy: {strategy}
sync: {sync}
workload:
  lengths: {{from: mix, parts: [{{weight: 1, median: 200, sigma: 0.7}}]}}
  batch_rows: 12
  max_tokens: {longest}
layout: {{{zero}dtype: float32}}
limits: {limits}
"""


def solve(folder, way=("best", None, "micro_batch"), limits="{tokens_per_rank: 1024}", longest=2048, batches=1):
    strategy, zero, sync = way
    zero = "" if zero is None else f"zero: {zero}, "
    path = folder / "job.yaml"
    path.write_text(JOB.format(strategy=strategy, zero=zero, sync=sync, limits=limits, longest=longest))
    return pipeline.solve(str(path), JobOptions(batches=batches, effort=1)).plan


@pytest.mark.slow
def test_an_infeasible_alternative_names_what_binds(tmp_path):
    """On little memory ZeRO-1 leaves no room."""
    states = "{memory_margin: 0.7440}"  # of 2 GiB, half a GiB of which is the context: leaves 12.3 MiB
    with pytest.raises(Infeasible, match="buffers take"):
        solve(tmp_path, ("data_ranks", 1, "step"), states)
    best = solve(tmp_path, limits=states, longest=150)
    assert "buffers take" in next(other.because for other in best.alternatives if other.zero == 1)


@pytest.mark.parametrize("way", [("sequence_groups", 3, "micro_batch"), ("data_ranks", 1, "step")])
def test_a_static_layout_is_refused_where_groups_change(tmp_path, way):
    fixed = "{}\nfix: {layouts: {llm: {tp: 2}}}"
    with pytest.raises(InputError, match=r"fix\.layouts has no place in it") as refused:
        solve(tmp_path, way, limits=fixed)
    assert "under `layout`" in refused.value.fix and "parallel_search" in refused.value.fix


MOE = """\
format: planner.job/1
name: experts
model: qwen3-30b-a3b
cluster: ./cluster.yaml
software: {software}
strategy: {strategy}
workload: {{lengths: 4096, batch_rows: 64}}
"""
STAGELESS = "fix: {layouts: {llm: {tp: 1, cp: 1, pp: 1}}}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "says"),
    [("sequence_groups", "or strategy: parallel_search"), ("data_ranks", "^strategy: parallel_search, or another job")],
)
@pytest.mark.every(2)
def test_a_job_with_experts_that_a_strategy_refuses_names_one_that_can(tmp_path, strategy, says):
    """Groups hold all experts on each rank, which do not fit; a search shards them, and plans the job."""
    small_cluster(tmp_path, "h100-80gb", 8)
    path = tmp_path / "job.yaml"
    path.write_text(MOE.format(software="megatron", strategy=strategy))
    with pytest.raises(Infeasible if strategy == "sequence_groups" else InputError) as refused:
        pipeline.solve(str(path), JobOptions())
    assert re.search(says, refused.value.fix)
    path.write_text(MOE.format(software="megatron", strategy=f"parallel_search\n{STAGELESS}"))
    (layout,) = pipeline.solve(str(path), JobOptions()).plan.layouts.values()
    assert layout.ep > 1
