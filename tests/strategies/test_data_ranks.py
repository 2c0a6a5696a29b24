"""What is decided is what is priced, never worse than what it begins with; offload only where it can be and hides."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner import files, pipeline
from planner.costs.packing_problem import PackingProblem, packing_problem
from planner.costs.pricing import pricing_of
from planner.errors import Infeasible
from planner.packing.packed_groups import packing_seconds
from planner.plan.plan_file import OffloadedItem, Plan
from planner.scoring.score import score
from planner.specs.inputs import JobOptions, load_job
from planner.strategies import data_ranks
from tests.plans import degrees_of
from tests.step_groupings import require_possible, warm_start
from tests.strategies.packed_plans import plan_of_packed, require_taken

GOLDEN = Path(__file__).parents[1] / "golden/data_ranks/offload-h200x8"
SMALL = """\
format: planner.job/1
name: small
model: tiny-decoder
cluster: cpu-4
profile: cpu
strategy: data_ranks
sync: step
workload: {lengths: {from: mix, parts: [{weight: 1, median: 200, sigma: 1}]}, batch_rows: 20, max_tokens: 2048}
layout: {zero: 2, dtype: float32}
"""


@pytest.fixture
def small(tmp_path):
    def write(extra: str = "", old: str = "", new: str = "") -> str:
        path = tmp_path / "job.yaml"
        path.write_text(SMALL.replace(old, new) + extra if old else SMALL + extra)
        return str(path)

    return write


@pytest.fixture
def h200s(tmp_path):
    """The golden job with something else in it."""

    def write(extra: str = "", old: str = "", new: str = "") -> str:
        (tmp_path / "cluster.yaml").write_text((GOLDEN / "cluster.yaml").read_text())
        path, text = tmp_path / "job.yaml", (GOLDEN / "job.yaml").read_text()
        assert old in text
        path.write_text(text.replace(old, new) + extra if old else text + extra)
        return str(path)

    return write


def problem_of(plan: Plan) -> PackingProblem:
    return packing_problem(pricing_of(plan), "llm", plan.uses, plan.uses.items["llm"], "step")


def pieces(plan: Plan) -> list[tuple[OffloadedItem, int]]:
    """What is offloaded, and on how many ranks."""
    groups = [(name, items) for step in plan.steps for row in step.micro_batches for name, items in row.items()]
    return [(e, degrees_of(plan)[name]) for name, items in groups for e in items if isinstance(e, OffloadedItem)]


@pytest.mark.parametrize(("sync", "zero", "can"), [("step", 0, True), ("step", 2, True), ("step", 3, False)])
def test_supports_ranks_that_meet_once_a_step(small, sync, zero, can):
    reason = data_ranks.supports(load_job(small(old="zero: 2", new=f"zero: {zero}"), JobOptions()))
    assert (reason is None) == can
    if reason:
        assert "sync: step" in reason and "zero: 0, 1 or 2" in reason


@pytest.mark.slow
@pytest.mark.parametrize("job", ["small", "golden", "nodes of eight"])
@pytest.mark.every(4)
def test_what_packing_says_it_is_worth_is_what_the_plan_takes(job, small, h200s):
    """For the packing that is found, and for the one that it began with; the better of them by the clock is kept."""
    path = {"small": small, "golden": h200s}.get(job, lambda: h200s(old="./cluster.yaml", new="h100x64"))()
    plan = pipeline.solve(path).plan
    problem = problem_of(plan)
    packed, _ = data_ranks.pack(problem, plan.made.effort)
    require_possible(problem, packed)
    assert plan.outcome.bound <= plan.outcome.value
    warm, _ = data_ranks.warm_start(problem, plan.made.effort)
    found, begun = (plan_of_packed(plan, problem, each) for each in (packed, warm))
    require_taken(found, problem, packed)
    require_taken(begun, problem, warm)
    assert packing_seconds(problem, packed) <= packing_seconds(problem, warm)
    assert plan.outcome.value == pytest.approx(min(score(found).step_seconds, score(begun).step_seconds), rel=1e-8)


def test_better_than_all_ranks_meeting_in_every_micro_batch(h200s):
    """The same sequences and prices; the others' gathers not even counted."""
    problem = problem_of(pipeline.solve(h200s()).plan)
    meeting = replace(problem, sync="micro_batch", micro_batch_seconds=0.0)
    packed, _ = data_ranks.pack(problem, 2)
    assert packing_seconds(problem, packed) < packing_seconds(meeting, warm_start(problem))


def test_offload_is_for_what_no_group_holds_and_never_above_what_hides():
    plan = files.read(GOLDEN / "plan.yaml", Plan)
    problem, sizes = problem_of(plan), plan.uses.items["llm"]
    cap, found = problem.shapes[0].cap, pieces(plan)
    assert found
    for piece, degree in found:
        size = sizes[piece.item]
        assert size > degree * cap >= problem.offload.kept_share(piece.offload) * size
        assert 0 < piece.offload <= problem.offload.largest_ratio(size)


@pytest.mark.slow
def test_without_a_way_to_the_host_nothing_is_offloaded(h200s, tmp_path):
    """What only offloading makes room for is then infeasible."""
    device = (GOLDEN.parents[3] / "profiles/devices/h200.yaml").read_text()
    lines = [line for line in device.splitlines() if "host_gb_per_s" not in line.split(":")[0]]
    (tmp_path / "h200.yaml").write_text("\n".join(lines) + "\n")
    cluster = (GOLDEN / "cluster.yaml").read_text().replace("kind: h200", "kind: ./h200.yaml")
    job = Path(h200s(old="profile: h200", new="profile: ./h200.yaml"))
    (tmp_path / "cluster.yaml").write_text(cluster)
    with pytest.raises(Infeasible, match=r"item 27 has \d+ tokens, and 8 ranks hold \d+") as caught:
        pipeline.solve(str(job))
    job.write_text(job.read_text().replace("max_tokens: 100000", "max_tokens: 60000"))
    assert caught.value.exit_code == 3
    assert pieces(pipeline.solve(str(job)).plan) == []


def test_degrees_are_the_jobs_or_any_within_a_node_and_any_number_of_nodes(small, h200s):
    assert data_ranks.candidate_degrees(load_job(h200s(), JobOptions())) == (1, 2, 3, 4, 8)
    assert data_ranks.candidate_degrees(load_job(small(), JobOptions())) == (1, 2, 3, 4)
    assert data_ranks.candidate_degrees(load_job(small("degrees: [4, 1, 9]\n"), JobOptions())) == (1, 4)


def test_fixed_items_are_kept(small):
    plan = pipeline.solve(small("fix: {items: {3: {degree: 3}, 5: {degree: 1}}}\n")).plan
    degree = {i: degrees_of(plan)[name] for row in plan.steps[0].micro_batches for name in row for i in row[name]}
    assert (degree[3], degree[5]) == (3, 1)
    assert plan.outcome.bound <= plan.outcome.value


@pytest.mark.parametrize(
    ("extra", "what", "fix"),
    [
        ("limits: {tokens_per_rank: 100}\n", r"item \d+ has \d+ tokens, and 4 ranks hold 400", "max_tokens: 400"),
        ("fix: {items: {3: {degree: 5}}}\n", "item 3 is fixed to degree 5, and 1, 2, 3, 4 are allowed", "allow that"),
        ("degrees: [8]\n", "no allowed degree fits on the ranks", "allow smaller degrees"),
        (
            "limits: {memory_margin: 0.99}\n",
            r"states, context and buffers take .* GiB of each rank",
            "GiB",
        ),
    ],
)
def test_what_cannot_be_says_what_binds_and_what_would_free_it(small, extra, what, fix):
    with pytest.raises(Infeasible, match=what) as caught:
        pipeline.solve(small(extra), JobOptions())
    assert fix in caught.value.fix and caught.value.where
