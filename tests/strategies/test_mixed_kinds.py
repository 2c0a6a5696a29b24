"""One layout over ranks of several kinds: quicker than on either, in each kind's memory, above what all can do."""

from dataclasses import replace
from itertools import combinations, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.costs import pricing_of
from planner.errors import Infeasible
from planner.layouts import mixed_work_bound, problems_by_kind
from planner.plan.launchable.launch_refusals import plan_refusals
from planner.plan.legal.plan_laws import violations
from planner.scoring import in_memory, plan_space_seconds, score
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.cluster import Cluster, cluster_of_kinds, rank_kinds
from planner.specs.hardware.joined_clusters import JoinedPart, joined_cluster
from planner.specs.inputs import Inputs, JobOptions, load_job
from planner.strategies import parallel_search
from planner.strategies.assignment.replica_seconds import ReplicaSeconds, assign_soonest
from planner.strategies.mixed_kinds.division import StageProblem, StageSeconds, divided_layers
from planner.strategies.static.layouts_plan import priced_together
from planner.why.resize_cluster import with_ranks
from tests.examples import examples, soaked
from tests.static_jobs import small_cluster, static_job

KINDS = ("h100-80gb", "a100-80gb", "h200", "a100-40gb")


def several(folder, counts: dict[str, int], per_node: int = 8) -> str:
    """Path of a cluster of so many ranks of each kind."""
    parts = []
    for kind, count in counts.items():
        one = files.read(small_cluster(folder, kind, count, per_node), Cluster)
        parts.append(JoinedPart(one, 25.0))
    path = folder / "several.yaml"
    files.write(path, joined_cluster(parts))
    return str(path)


def mixed(folder, counts, kept="", per_node=8) -> Inputs:
    """A job of 32 sequences of Llama-3-8B on these ranks."""
    cluster = several(folder, counts, per_node)
    return load_job(static_job(folder, "llama-3-8b", cluster, (2048,) * 32, "", kept), JobOptions(effort=1))


# ----------------------------------------------------------------------------------------------- shares and stages


@examples(50)
@given(st.lists(st.tuples(st.floats(0.1, 5), st.floats(0, 3)), min_size=1, max_size=3), st.integers(1, 7))
def test_equal_items_are_done_as_soon_as_any_shares_of_replicas_are(drawn, count):
    replicas = [ReplicaSeconds({8: seconds}, fill) for seconds, fill in drawn]
    shares = [len(items) for items in assign_soonest(range(count), dict.fromkeys(range(count), 8), replicas, 1)]

    def end(numbers):
        return max(n * replica.seconds[8] + replica.fill for n, replica in zip(numbers, replicas, strict=True) if n)

    every = (each for each in product(range(count + 1), repeat=len(replicas)) if sum(each) == count)
    assert sum(shares) == count and end(shares) <= min(map(end, every)) * (1 + 1e-9)


@pytest.mark.parametrize("seed", soaked(range(40), range(6)))
def test_stages_are_divided_as_well_as_any(seed):
    chance = Random(seed)
    stages, layers = chance.randint(2, 4), chance.randint(5, 11)
    seconds = {
        (kind,): StageSeconds(chance.uniform(0, 0.2), each, 1.3 * each, chance.uniform(0, 2) * each)
        for kind, each in (("quick", chance.uniform(0.5, 1)), ("slow", chance.uniform(1, 3)))
    }
    replicas = {
        tuple(chance.choice([*seconds]) for _ in range(stages)): chance.randint(1, 3)
        for _ in range(chance.randint(1, 2))
    }
    problem = StageProblem(replicas, seconds, layers, 1, chance.randint(4, 40), 1)
    none = [0] * stages
    cuts = combinations(range(1, layers), stages - 1)
    every = [[b - a for a, b in zip((0, *each), (*each, layers), strict=True)] for each in cuts]
    found = problem.step_seconds(divided_layers(problem, none), none)
    even = [layers // stages + (stage < layers % stages) for stage in range(stages)]
    assert found <= problem.step_seconds(even, none) * (1 + 1e-9)
    assert found <= 1.02 * min(problem.step_seconds(each, none) for each in every)  # moves may end a little above


# --------------------------------------------------------------------------------------------------- whole searches


def value_on(inputs: Inputs, kind: str) -> float:
    """The best step on the ranks of one kind alone."""
    alone = replace(inputs, cluster=cluster_of_kinds(inputs.cluster, (kind,)))
    try:
        return parallel_search.plan(alone, None).outcome.value
    except Infeasible:
        return float("inf")


@pytest.mark.soak
@pytest.mark.parametrize("seed", soaked(range(500), (3, 8)))
def test_no_worse_than_on_the_best_kind_and_above_what_all_can_do(tmp_path, seed):
    chance = Random(seed)
    first, other = chance.sample(KINDS, 2)
    inputs = mixed(tmp_path, {first: chance.choice((2, 4, 8)), other: chance.choice((2, 4, 8, 16))})
    alone = min(value_on(inputs, kind) for kind in (first, other))
    try:
        plan = parallel_search.plan(inputs, None)
    except Infeasible:
        assert alone == float("inf")
        return
    assert violations(plan) == [] and in_memory([score(plan)])
    assert plan.outcome.bound <= plan.outcome.value <= alone * (1 + 1e-9)
    assert plan.outcome.bound == pytest.approx(plan_space_seconds(plan))


def test_two_kinds_do_more_than_either(tmp_path):
    inputs = mixed(tmp_path, {"h100-80gb": 4, "a100-80gb": 4}, kept="tp: 2, zero: 1, cp: 1, pp: 1, recompute: full")
    plan = parallel_search.plan(inputs, None)
    (layout,) = plan.layouts.values()
    assert layout.ranks == Ranks(range(8))
    done = {name: sum(name in each for each in plan.steps[0].micro_batches) for name in plan.groups}
    assert done["dp0"] > done["dp3"] > 0  # H100 have more
    assert plan.outcome.value < 0.9 * value_on(inputs, "h100-80gb")
    problems, counts = problems_by_kind(inputs)
    less = {**counts, "a100-80gb": 2}
    assert mixed_work_bound(problems, counts) < mixed_work_bound(problems, less)


def test_a_fixed_layout_on_two_kinds_is_priced_as_it_was_found(tmp_path):
    open_ = mixed(tmp_path, {"h100-80gb": 4, "a100-80gb": 4}, kept="tp: 2, cp: 1, pp: 2, vpp: 1, zero: 1")
    plan = parallel_search.plan(open_, None)
    (layout,) = plan.layouts.values()
    sizes = [len(stage) for stage in layout.stages]
    assert sizes[0] > sizes[1] or len(set(sizes)) == 1
    again, _ = priced_together(replace(open_, job=with_fields(open_.job, fix=with_fields(
        open_.job.fix, layouts={"llm": with_fields(open_.job.layout, **{
            name: getattr(layout, name)
            for name in ("micro_batch", "recompute", "rank_order", "stages", "schedule", "sequence_parallel", "overlap")
        })}
    ))))  # fmt: skip
    assert again.outcome.value == plan.outcome.value


def test_a_kind_without_the_dtype_has_no_work(tmp_path):
    inputs = mixed(tmp_path, {"h100-80gb": 4, "v100-32gb": 2}, kept="tp: 1, zero: 3, cp: 1, pp: 1, recompute: full")
    plan = parallel_search.plan(inputs, None)
    assert plan.layouts["llm"].ranks == Ranks(range(4))
    assert any("v100-32gb has no bfloat16" in each.because for each in plan.alternatives)


def test_software_whose_replicas_are_alike_has_equal_shares(tmp_path):
    kept = "tp: 2, zero: 1, cp: 1, pp: 1, recompute: full"
    inputs = mixed(tmp_path, {"h100-80gb": 4, "a100-80gb": 4}, kept=kept)
    alike = replace(
        inputs, software=with_fields(inputs.software, knobs=with_fields(inputs.software.knobs, groups="layout"))
    )
    plan = parallel_search.plan(alike, None)
    held = [len(each) for each in plan.steps[0].micro_batches]
    assert len(set(held)) == 1 and not [*plan_refusals(plan)]
    other = parallel_search.plan(inputs, None)
    judged = with_fields(other, uses=with_fields(other.uses, software=alike.software))
    assert [refusal.rule for _, refusal in plan_refusals(judged)] == ["shares of replicas"]


def test_one_more_node_grows_the_links_of_its_kind(tmp_path):
    inputs = mixed(tmp_path, {"h100-80gb": 4, "a100-80gb": 8}, per_node=4)
    for at, levels in ((0, [4, 8]), (1, [4, 12])):
        entry = inputs.cluster.ranks[at]
        wider = with_ranks(inputs, at, entry.count + 4).cluster
        assert [level.ranks for level in wider.ranks[at].levels] == levels
        assert wider.levels[-1].ranks == wider.size == 16


# ------------------------------------------------------------------------------------------------------------ links


def test_ranks_of_one_kind_keep_their_links(tmp_path):
    inputs = mixed(tmp_path, {"h100-80gb": 8, "a100-80gb": 8}, per_node=4, kept="tp: 2, zero: 1, pp: 1, cp: 1")
    pricing = pricing_of(parallel_search.plan(inputs, None))
    kinds = rank_kinds(inputs.cluster)
    for kind, near in zip(kinds, ((0, 1), (8, 9)), strict=True):
        alone = cluster_of_kinds(inputs.cluster, (kind,))
        network = pricing.machine(kind).network
        assert [level.ranks for level in network.levels] == [*(level.ranks for level in alone.levels), 16]
        assert near[1] - near[0] == 1
