"""A job on H100 and A100 at once: groups within one kind, each within its memory, better than either alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner import files, pipeline
from planner.costs.memory.allowed_memory import allowed_bytes
from planner.costs.packing_problem import PackingProblem, packing_problem
from planner.costs.pricing import Pricing
from planner.costs.ulysses_or_ring import allowed_degrees
from planner.errors import Infeasible
from planner.packing.makespan_search import restrict_to_pool
from planner.packing.packed_groups import packing_seconds
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan
from planner.scoring.score import score
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.inputs import Inputs, JobOptions, load_job
from planner.strategies.plan_drafts import data_parallel_layouts
from planner.strategies.plan_drafts import plan_uses as used_by
from planner.strategies.sequence_groups import pack

GOLDEN = Path(__file__).parents[1] / "golden/sequence_groups/two-kinds"
JOBS = [str(GOLDEN / "job.yaml"), "llama-3-8b-h100x32-a100x32"]


def problem_of(inputs: Inputs) -> PackingProblem:
    layouts = data_parallel_layouts(inputs)
    used = used_by(inputs, layouts, allowed_degrees(inputs.spec, inputs.cluster.size, inputs.job.degrees))
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    return packing_problem(pricing, inputs.module, used, inputs.batches[0].items)


def all_of(inputs: Inputs, kind: str) -> Inputs:
    """Every rank of one kind."""
    ranks = tuple(with_fields(entry, kind=kind) for entry in inputs.cluster.ranks)
    return replace(inputs, cluster=with_fields(inputs.cluster, ranks=ranks))


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.every(2)
def test_groups_lie_within_one_kind_and_its_memory(job):
    plan = pipeline.solve(job).plan
    assert violations(plan) == []
    kind = {rank: device_of_rank(plan.uses.cluster, rank) for rank in range(plan.size)}
    assert set(kind.values()) == set(plan.uses.devices) and len(plan.uses.devices) == 2
    assert all(len({kind[rank] for rank in group.ranks}) == 1 for group in plan.groups.values())
    peaks, limits, kept = score(plan).memory.peaks, plan.uses.limits, plan.uses.prices.accounting
    caps = {name: allowed_bytes(device, limits, kept) for name, device in plan.uses.devices.items()}
    assert all(peak <= caps[kind[rank]] for rank, peak in enumerate(peaks))
    assert plan.outcome.bound <= plan.outcome.value


@pytest.mark.parametrize("job", JOBS)
def test_better_than_either_kind_alone(job):
    inputs = load_job(job, JobOptions())
    problem = problem_of(inputs)
    value = packing_seconds(problem, pack(problem, 2)[0])
    for number in range(len(problem.pools)):
        alone = restrict_to_pool(problem, number)
        if all(map(alone.choices, alone.sizes)):  # on the smaller devices the longest sequence fits nowhere
            assert value < packing_seconds(alone, pack(alone, 2)[0])


def test_better_than_taking_every_rank_for_the_slower_kind():
    small, large = (load_job(job, JobOptions()) for job in JOBS)
    slow = problem_of(all_of(large, "a100-80gb"))
    assert len(slow.pools) == 1
    problem = problem_of(large)
    assert packing_seconds(problem, pack(problem, 2)[0]) < packing_seconds(slow, pack(slow, 2)[0])
    with pytest.raises(Infeasible):  # and the longest sequence needs the larger one's memory
        problem_of(all_of(small, "a100-40gb"))


@pytest.mark.slow
def test_each_kind_faster_makes_no_plan_longer():
    """The stored decisions, on ranks of which one kind is the other's equal or better."""
    inputs = load_job(JOBS[0], JobOptions())
    fast, slow = (entry.kind for entry in inputs.cluster.ranks)
    plan = files.read(GOLDEN / "plan.yaml", Plan)
    prices = plan.uses.prices
    values = []
    for kinds in ((slow, slow), (slow, fast), (fast, slow), (fast, fast)):
        likes = dict(zip((fast, slow), kinds, strict=True))
        rates = {kind: prices.rates[like] for kind, like in likes.items()}
        memory = {kind: device.memory_gib for kind, device in plan.uses.devices.items()}  # as it is: all has to fit
        devices = {kind: with_fields(plan.uses.devices[like], memory_gib=memory[kind]) for kind, like in likes.items()}
        uses = with_fields(plan.uses, devices=devices, prices=with_fields(prices, rates=rates))
        values.append(score(with_fields(plan, uses=uses)).step_seconds)
    all_slow, one, other, all_fast = values
    assert all_fast <= min(one, other) and max(one, other) <= all_slow
    assert other == pytest.approx(plan.outcome.value)


def test_what_fits_no_kind_says_so(tmp_path):
    text = (GOLDEN / "job.yaml").read_text()
    (tmp_path / "cluster.yaml").write_text((GOLDEN / "cluster.yaml").read_text())
    (tmp_path / "job.yaml").write_text(text + "limits: {tokens_per_rank: 5000}\n")
    with pytest.raises(Infeasible, match="4 ranks of h100-80gb hold 20000; all ranks together would hold it") as caught:
        pipeline.solve(str(tmp_path / "job.yaml"))
    assert "6 ranks of h100-80gb" in caught.value.fix
