"""The best of all strategies: never behind one of them alone, and infeasible only where none gives a plan."""

from dataclasses import replace
from functools import partial

import pytest

from planner.callbacks import silent
from planner.errors import Infeasible, InputError, Unsupported
from planner.plan.descriptions import alternative_text
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Alternative
from planner.scoring import bounds_same_work
from planner.solve_job import solve_job, solve_with
from planner.specs.base import with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.software import Framework
from planner.strategies import STRATEGIES, best_of_candidates
from planner.strategies.best import open_candidates
from tests.examples import soaked
from tests.static_jobs import small_cluster, static_inputs

VARIED = [300, 9000, 512, 700, 4096, 1000, 2048, 600, 333, 8192, 64, 1500, 2500, 700, 128, 4000]


def inputs_of(tmp_path, ranks, sizes, kept="", layers=32):
    """Of the shipped model, or of its first layers: there are fewer layouts of these."""
    inputs = static_inputs(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", ranks), sizes, "", kept)
    inputs = replace(inputs, model=with_fields(inputs.model, modules={"llm": with_fields(inputs.spec, layers=layers)}))
    job = with_fields(inputs.job, strategy="best", fix=with_fields(inputs.job.fix, layouts={}))
    return replace(inputs, job=job, effort=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "sizes", "kept"), [(8, [8192] * 16, ""), (8, VARIED, ""), (24, [4096] * 48, "recompute: none")]
)
@pytest.mark.every(6)
def test_no_strategy_alone_is_better(tmp_path, ranks, sizes, kept):
    inputs = inputs_of(tmp_path, ranks, sizes, kept, layers=4)
    best = solve_job(inputs, silent).plan
    assert violations(best) == []
    tried = 0
    for name in STRATEGIES:
        try:
            alone = solve_with(name, inputs, silent).plan
        except (Infeasible, InputError):
            continue
        assert best.outcome.value <= alone.outcome.value * (1 + 1e-9), name
        if not bounds_same_work(alone.outcome.bound_by):  # what it says of the best possible holds for each of them
            assert best.outcome.bound <= alone.outcome.bound * (1 + 1e-9), name
        tried += 1
    assert tried >= 2
    same_numerics = [each for each in best.alternatives if "changes numerics" not in each.because]
    values = [each.value for each in same_numerics if each.value is not None]
    assert values and min(values) >= best.outcome.value * (1 - 1e-9)


@pytest.mark.soak
@pytest.mark.parametrize("sizes", [[8192] * 16, VARIED])
def test_where_all_that_can_be_launched_is_static_the_bound_is_that_of_the_search(tmp_path, sizes):
    """What other strategies could do with groups that change says nothing of a framework that has none."""
    inputs = inputs_of(tmp_path, 8, sizes, layers=4)
    free = solve_job(inputs, silent).plan
    knobs = Knobs(groups="layout", packing="equal", orders="named")
    told = replace(inputs, software=with_fields(inputs.software, knobs=knobs))
    best, searched = solve_job(told, silent).plan, solve_with("parallel_search", told, silent).plan
    assert best.outcome.bound == searched.outcome.bound and best.outcome.bound_by == "space"
    assert best.outcome.bound <= best.outcome.value and free.outcome.bound <= best.outcome.bound * (1 + 1e-9)


def test_a_model_that_fits_under_no_strategy_says_what_would_fit(tmp_path):
    with pytest.raises(Infeasible, match="no layout"):
        solve_job(inputs_of(tmp_path, 1, [8192] * 4), silent)


@pytest.mark.slow
@pytest.mark.parametrize("zero", soaked([0, 1, 2], [1]))
@pytest.mark.every(2)
def test_a_fixed_stage_is_tried_by_every_strategy_that_has_it(tmp_path, zero):
    """Without sharding there is one candidate more; left open it is none, as a lower stage is never quicker."""
    inputs = inputs_of(tmp_path, 8, VARIED, f"recompute: none, zero: {zero}", layers=2)
    alone = replace(inputs, job=with_fields(inputs.job, sync="step"))
    candidates = {(each.strategy, each.zero) for each in open_candidates(inputs, STRATEGIES)}
    assert ("data_ranks", zero) in candidates and ("sequence_groups", 3) not in candidates
    least = solve_with("data_ranks", alone, silent).plan.outcome.value
    assert solve_job(inputs, silent).plan.outcome.value <= least
    open_zero = replace(alone, job=with_fields(alone.job, layout=with_fields(alone.job.layout, zero=1)))
    assert solve_with("data_ranks", open_zero, silent).plan.outcome.value <= least * (1 + 1e-9)


# ------------------------------------------------------------------------------------- what the software can launch


def by_framework(inputs, **knobs):
    return replace(inputs, software=Framework(name="ours", knobs=Knobs(**knobs)))


@pytest.mark.soak
def test_mixed_groups_are_listed_and_not_chosen_where_they_cannot_be_launched(tmp_path):
    inputs = inputs_of(tmp_path, 8, VARIED, layers=8)
    free = solve_job(inputs, silent).plan
    bound = solve_job(by_framework(inputs, groups="layout", packing="equal", overlap=()), silent).plan
    assert free.made.strategy != "parallel_search" and bound.made.strategy == "parallel_search"
    assert violations(bound) == []
    refused = [
        each for each in bound.alternatives if each.because.startswith("ours cannot launch this plan: groups of")
    ]
    assert min(each.value for each in refused) == free.outcome.value < bound.outcome.value
    assert {each.strategy for each in refused} == {"sequence_groups", "data_ranks"}


@pytest.mark.slow
def test_a_strategy_alone_says_what_cannot_be_launched(tmp_path):
    inputs = by_framework(inputs_of(tmp_path, 8, VARIED), groups="layout")
    with pytest.raises(Infeasible, match=r"ours cannot launch this plan: groups of .* \(rule: groups\)") as refused:
        solve_job(replace(inputs, job=with_fields(inputs.job, strategy="sequence_groups")), silent)
    assert "strategy: best" in refused.value.fix and "software: any" in refused.value.fix
    only = {"sequence_groups": STRATEGIES["sequence_groups"]}
    with pytest.raises(Infeasible) as of_best:
        best_of_candidates(inputs, strategies(inputs), only)
    rule_fix, _, otherwise = refused.value.fix.partition("; strategy: best; ")
    assert of_best.value.message == refused.value.message and of_best.value.fix == f"{rule_fix}; {otherwise}"


# ------------------------------------------------------------------------------------------- candidates that fail


def failing(error):
    def solve(inputs):
        raise error

    return solve


def strategies(inputs, **others):
    return {name: partial(solve_with, name, on_batch=silent) for name in STRATEGIES} | others


@pytest.mark.slow
def test_a_failed_alternative_says_only_what_its_strategy_was_given(tmp_path):
    inputs = inputs_of(tmp_path, 8, [8192] * 16, "recompute: none", layers=2)
    best = best_of_candidates(inputs, strategies(inputs, sequence_groups=failing(Infeasible("too long"))), STRATEGIES)
    failed = {each.strategy: each for each in best.plan.alternatives if each.value is None}
    assert alternative_text(failed["sequence_groups"], "") == "sequence_groups with zero: 3, sync: micro_batch"
    assert failed["sequence_groups"].because == "too long"
    assert alternative_text(failed["pipeline_order"], "") == "pipeline_order"
    lost = best_of_candidates(inputs, strategies(inputs, parallel_search=failing(Infeasible("no layout"))), STRATEGIES)
    (searched,) = [each for each in lost.plan.alternatives if each.strategy == "parallel_search"]
    assert searched.zero is None and searched.sync is None and searched.because == "no layout"


@pytest.mark.slow
def test_an_error_about_the_job_surfaces_and_an_unable_strategy_does_not(tmp_path):
    inputs = inputs_of(tmp_path, 8, [8192] * 16, "recompute: none", layers=2)
    with pytest.raises(InputError, match="no such file"):
        best_of_candidates(inputs, strategies(inputs, data_ranks=failing(InputError("no such file"))), STRATEGIES)
    best = best_of_candidates(inputs, strategies(inputs, data_ranks=failing(Unsupported("not this job"))), STRATEGIES)
    said = [each for each in best.plan.alternatives if each.strategy == "data_ranks"]
    assert said == [Alternative(strategy="data_ranks", because="not this job")]
