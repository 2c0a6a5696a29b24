"""What is decided is what is priced, never worse than one balanced degree; what cannot be says why."""

import random
from pathlib import Path

import pytest

from planner import files, pipeline
from planner.costs.packing_problem import packing_problem
from planner.costs.pricing import pricing_of
from planner.errors import Infeasible, InputError
from planner.packing.balanced import best_balanced
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan
from planner.scoring.score import score, with_score
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.strategies import STRATEGIES, strategy_called
from planner.strategies.plan_drafts import plan_micro_batch
from tests.examples import share
from tests.groupings import any_packing, require_lies_well, require_possible
from tests.plans import degrees_of
from tests.strategies.packed_plans import plan_of_packed, require_taken

GOLDEN = Path(__file__).parents[1] / "golden/sequence_groups"
PLANS = {path.parent.name: files.read(path, Plan) for path in sorted(GOLDEN.glob("*/plan.yaml"))}
JOB = """\
format: planner.job/1
name: small
model: tiny-decoder
cluster: cpu-4
profile: cpu
workload: {lengths: {from: mix, parts: [{weight: 1, median: 200, sigma: 1}]}, batch_rows: 20, max_tokens: 2048}
layout: {zero: 3, dtype: float32}
"""


def write(folder, extra=""):
    path = folder / "job.yaml"
    path.write_text(JOB + extra)
    return str(path)


def problem_of(plan: Plan):
    (module,) = plan.layouts
    return packing_problem(pricing_of(plan), module, plan.uses, plan.uses.items[module])


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("seed", range(share(5)))
@pytest.mark.every(9)
def test_what_packing_says_it_is_worth_is_what_the_plan_takes(name, seed):
    """The line that is optimised and the clock that is simulated agree, for any packing, but for what hides."""
    plan = PLANS[name]
    problem = problem_of(plan)
    packed = any_packing(problem, random.Random(seed))
    require_possible(problem, packed)
    require_taken(plan_of_packed(plan, problem, packed), problem, packed)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.every(2)
def test_a_plan_is_no_worse_than_one_balanced_degree_and_above_its_bound(name):
    plan = PLANS[name]
    problem = problem_of(plan)
    balanced = plan_of_packed(plan, problem, best_balanced(problem))
    assert plan.outcome.value <= score(balanced).step_seconds * (1 + 1e-9)
    assert plan.outcome.bound <= plan.outcome.value
    assert plan.outcome.gap == pytest.approx(plan.outcome.value / plan.outcome.bound - 1, abs=1e-8)
    assert with_score(plan, plan.outcome.effort) == plan


@pytest.mark.slow
def test_batches_follow_each_other_and_have_a_step_each(tmp_path):
    plan = pipeline.solve(write(tmp_path), JobOptions(batches=3)).plan
    assert [sorted(set(range(20 * n, 20 * n + 20)) - set(plan.uses.dropped)) for n in range(3)] == [
        sorted(i for row in step.micro_batches for items in row.values() for i in items) for step in plan.steps
    ]
    assert plan.outcome.value == pytest.approx(sum(step.outcome.value for step in plan.steps))
    assert plan.outcome.value == pytest.approx(sum(s.step_seconds for s in pipeline.simulate(plan)))
    last = pipeline.solve(write(tmp_path), JobOptions(first_row=40)).plan
    assert last.steps[0].micro_batches == plan.steps[2].micro_batches
    assert violations(plan) == []


def test_rows_that_are_too_long_are_dropped_and_named(tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("\n".join(map(str, [100, 3000, 200, 2048, 2049] + [50] * 15)))
    plan = pipeline.solve(write(tmp_path), JobOptions(lengths=str(path))).plan
    assert plan.uses.dropped == (1, 4)
    assert set(plan.uses.items["llm"]) == set(range(20)) - {1, 4}


def test_degrees_and_fixed_items_are_kept(tmp_path):
    job = write(tmp_path, "degrees: [4, 1]\nfix: {items: {3: {degree: 4}, 5: {degree: 1}, 99: {degree: 7}}}\n")
    plan = pipeline.solve(job, JobOptions()).plan
    degree = {i: degrees_of(plan)[name] for row in plan.steps[0].micro_batches for name in row for i in row[name]}
    assert set(degree.values()) <= {1, 4} and (degree[3], degree[5]) == (4, 1)


@pytest.mark.parametrize(
    ("extra", "what", "where", "fix"),
    [
        (
            "degrees: [1, 2]\nlimits: {tokens_per_rank: 300}\n",
            r"item \d+ has \d+ tokens, and 2 ranks hold 600",
            "what binds",
            "or workload.max_tokens: 600",
        ),
        (
            "degrees: [1, 2]\nfix: {items: {3: {degree: 4}}}\n",
            "item 3 is fixed to degree 4, and 1, 2 are allowed",
            "fix.items",
            "allow that degree",
        ),
        ("degrees: [8]\n", "no allowed degree fits on the ranks", "degrees", "allow smaller degrees"),
        (
            "limits: {memory_margin: 0.99}\n",
            r"states, context and buffers take .* GiB of each rank",
            "memory",
            "GiB",
        ),
    ],
)
def test_what_cannot_be_says_what_binds_and_what_would_free_it(tmp_path, extra, what, where, fix):
    with pytest.raises(Infeasible, match=what) as caught:
        pipeline.solve(write(tmp_path, extra), JobOptions())
    assert where in caught.value.where and fix in caught.value.fix
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("extra", ["sync: step\n", "strategy: magic\n"])
def test_what_is_not_supported_is_refused_with_the_reason(tmp_path, extra):
    with pytest.raises(InputError) as caught:
        pipeline.solve(write(tmp_path, extra), JobOptions())
    assert "strategy" in caught.value.where and caught.value.fix


def test_every_strategy_says_what_it_decides():
    for name in STRATEGIES:
        assert strategy_called(name).SUMMARY
        for job in sorted((GOLDEN.parent / name).glob("*/job.yaml")):
            assert strategy_called(name).supports(load_job(str(job), JobOptions())) is None


@pytest.mark.parametrize("degrees", [(5,), (5, 6), (1, 3, 5), (3, 6, 12)])
@pytest.mark.every(4)
def test_never_worse_than_balanced_where_degrees_do_not_divide_nodes(degrees, tmp_path):
    """A group of 5 lies within a node of 8, one of 12 begins with a node, so that both take what they were priced."""
    job = JOB.replace("cpu-4", "h100x64").replace("profile: cpu", "profile: auto").replace("float32", "bf16")
    path = tmp_path / "job.yaml"
    path.write_text(job.replace("tiny-decoder", "llama-3-8b") + f"degrees: {[*degrees]}\n")
    plan = pipeline.solve(str(path)).plan
    problem, groups = problem_of(plan), {}
    for name, degree in degrees_of(plan).items():
        require_lies_well(problem, degrees.index(degree), plan.groups[name].ranks[0])
    rows = tuple(plan_micro_batch(row, problem, plan.uses.models["llm"], groups) for row in best_balanced(problem))
    (step,) = plan.steps
    placed = with_score(with_fields(plan, groups=groups, steps=(with_fields(step, micro_batches=rows),)), "")
    assert plan.outcome.value <= placed.outcome.value
