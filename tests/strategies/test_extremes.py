"""Whatever the lengths, the ranks and the cap: a legal plan above its bound, or one clear error; in bounded work."""

import pytest

from planner import pipeline
from planner.errors import Infeasible, InputError
from planner.plan.legal.plan_laws import violations
from planner.specs.inputs import JobOptions
from tests.examples import thorough

JOB = """\
format: planner.job/1
name: extreme
model: {model}
cluster: {cluster}
profile: {profile}
strategy: {strategy}
sync: {sync}
workload: {{lengths: {{from: file, path: lengths.txt}}, batch_rows: {rows}, max_tokens: 1000000}}
layout: {{zero: {zero}, dtype: {dtype}}}
{extra}
"""
SMALL = {"model": "tiny-decoder", "cluster": "cpu-4", "profile": "cpu", "dtype": "float32"}
LARGE = {"model": "gpt-7b", "cluster": "a100x64", "profile": "flexsp-a100-40gb", "dtype": "bf16"}
WAYS = [("sequence_groups", "micro_batch", 3), ("data_ranks", "step", 2)]


@pytest.fixture(params=WAYS, ids=[name for name, _, _ in WAYS])
def job(request, tmp_path):
    strategy, sync, zero = request.param

    def write(lengths, where=SMALL, extra="", **other):
        (tmp_path / "lengths.txt").write_text("\n".join(map(str, lengths)))
        fields = where | {"strategy": strategy, "sync": sync, "zero": zero} | other
        path = tmp_path / "job.yaml"
        path.write_text(JOB.format(rows=len(lengths), extra=extra, **fields))
        return str(path)

    return write


@pytest.mark.parametrize(
    "lengths",
    [[1], [2048], [7] * 33, [1, 2], [2048, *[1] * 30], [900] * 3, [2000, 1999, 1998, 1997, 1996]],
    ids=["one token", "one sequence", "all equal", "fewer than ranks", "one long", "three", "all long"],
)
@pytest.mark.parametrize("limit", ["", "limits: {tokens_per_rank: 600}"], ids=["by memory", "by the job's limit"])
@pytest.mark.every(9)
def test_odd_batches_have_legal_plans(job, lengths, limit):
    plan = pipeline.solve(job(lengths, extra=limit), JobOptions(effort=1)).plan
    assert violations(plan) == []
    assert 0 < plan.outcome.bound <= plan.outcome.value
    assert sorted(plan.uses.items["llm"]) == [*range(len(lengths))]


@pytest.mark.soak
def test_thousands_of_sequences_on_64_ranks(job):
    lengths = [1 + (n * n) % 3001 for n in range(10_000 if thorough() else 3_000)]
    plan = pipeline.solve(job(lengths, LARGE, "limits: {tokens_per_rank: 6449}"), JobOptions(effort=1)).plan
    assert violations(plan) == []
    assert plan.outcome.gap < 0.05


def test_heads_that_do_not_divide_the_degree_are_joined_by_a_ring(job):
    plan = pipeline.solve(job([300] * 9, extra="degrees: [3]"), JobOptions()).plan
    assert {tuple(group.split.items()) for group in plan.groups.values()} == {(("ring", 3),)}


@pytest.mark.parametrize(
    ("lengths", "where", "extra", "what"),
    [
        ([0], SMALL, "", "is no length"),
        ([-5, 3], SMALL, "", "is no length"),
        ([900_000], LARGE, "limits: {tokens_per_rank: 449}", "item 0 has 900000 tokens, and 64 ranks hold 28736"),
        ([100], SMALL, "limits: {tokens_per_rank: 10}\ndegrees: [1, 2]", "item 0 has 100 tokens, and 2 ranks hold 20"),
        ([100], SMALL, "limits: {memory_margin: 0.999}", "buffers take"),
        ([100], SMALL, "degrees: [8]", "no allowed degree fits"),
    ],
    ids=["zero tokens", "negative", "longer than the cluster", "longer than a group", "states", "degrees"],
)
def test_what_cannot_be_is_one_clear_error(job, lengths, where, extra, what):
    with pytest.raises((Infeasible, InputError), match=what) as caught:
        pipeline.solve(job(lengths, where, extra), JobOptions())
    assert caught.value.fix


def test_a_strategy_says_which_sync_it_needs(job):
    with pytest.raises(InputError, match=r"needs sync: (micro_batch|step)"):
        pipeline.solve(job([100], zero=1, sync="micro_batch"), JobOptions())
