"""Whatever decides, documents and groups of state spaces stay whole."""

import pytest

from planner.errors import InputError
from planner.pipeline import solve
from tests.static_jobs import small_cluster

MODEL = """\
format: planner.model/1
name: small-hybrid
source: made up
modules:
  llm: {kind: decoder, layers: 8, hidden: 1024, heads: 16, ffn: 4096, vocab: 32000,
        state_space: {heads: 32, head_dim: 64, state: 64}, pattern: "M - M * - M - M"}
"""
JOB = """\
format: planner.job/1
name: hybrid
model: model.yaml
cluster: cluster.yaml
workload: {lengths: {from: file, path: lengths.txt}, batch_rows: 16, max_tokens: 2048}
"""


@pytest.fixture
def job(tmp_path):
    small_cluster(tmp_path, "h100-80gb", 8)
    (tmp_path / "model.yaml").write_text(MODEL)
    (tmp_path / "lengths.txt").write_text("2048\n" * 16)

    def made(said):
        (tmp_path / "job.yaml").write_text(JOB + said)
        return str(tmp_path / "job.yaml")

    return made


@pytest.mark.slow
def test_a_search_parts_neither(job):
    layout = solve(job("strategy: parallel_search\n")).plan.layouts["llm"]
    assert (layout.tp, layout.cp) == (1, 1)


@pytest.mark.parametrize(
    "said", ["strategy: data_ranks\nsync: step\nlayout: {zero: 1}\n", "strategy: sequence_groups\nsync: micro_batch\n"]
)
@pytest.mark.every(2)
def test_groups_are_single_ranks(job, said):
    plan = solve(job(said)).plan
    assert {len(group.ranks) for group in plan.groups.values()} == {1}


@pytest.mark.parametrize("dim", ["tp", "cp"])  # it has one group
def test_what_is_fixed_otherwise_is_an_error_of_input(job, dim):
    with pytest.raises(InputError) as refused:
        solve(job(f"strategy: parallel_search\nlayout: {{{dim}: 2}}\n"))
    assert refused.value.fix == f"{dim}=1 instead" and "state spaces" in refused.value.message
