"""Encoders and LLM planned together: legal plans with what the job fixes, none slower than any layouts by hand."""

from dataclasses import replace
from itertools import product

import pytest

from planner.errors import Infeasible, InputError
from planner.plan.legal.plan_laws import violations
from planner.scoring import score
from planner.solve_job import solve_job
from planner.specs.base import Layers, Ranks, with_fields
from planner.strategies import modality_layout
from planner.strategies.modality.joint_search import JointTrials
from tests.modality_jobs import seeing_job

EVEN_STAGES = (Layers((0, 1)), Layers((2, 3)))
NO_CALLBACK = lambda *_: None  # noqa: E731


def solved(inputs):
    return solve_job(inputs, NO_CALLBACK).plan


def test_a_plan_is_legal_and_its_numbers_are_its_own(tmp_path):
    plan = solved(seeing_job(tmp_path))
    assert not violations(plan)
    assert plan.made.strategy == "modality_layout"
    assert plan.outcome.value == pytest.approx(score(plan).step_seconds, rel=1e-8)
    assert plan.outcome.bound <= plan.outcome.value


def test_the_same_job_gives_the_same_plan(tmp_path):
    inputs = seeing_job(tmp_path)
    assert solved(inputs) == solved(inputs)


def test_best_is_this_strategy_where_there_are_several_modules(tmp_path):
    inputs = seeing_job(tmp_path)
    best = solved(replace(inputs, job=with_fields(inputs.job, strategy="best")))
    assert best.layouts == solved(inputs).layouts


@pytest.mark.parametrize(
    "fixed",
    [
        "vit: {tp: 2}",
        "vit: {ranks: 3}",
        "vit: {ranks: 0-3, zero: 0}",
        "vit: {ranks: first_stage, recompute: full}",
        "llm: {pp: 2}, vit: {ahead: 1, backward: at_once}",
        "llm: {ranks: 0-1}",
        "llm: {tp: 2, ranks: 2-3}, vit: {ranks: 0-1, dp: 2}",
    ],
)
def test_what_a_job_fixes_is_kept(tmp_path, fixed):
    inputs = seeing_job(tmp_path, fixed=fixed)
    plan = solved(inputs)
    for name, wanted in inputs.job.fix.layouts.items():
        for field in wanted.__struct_fields__:
            value = getattr(wanted, field)
            if isinstance(value, Ranks) or (value is not None and field != "ranks"):
                assert getattr(plan.layouts[name], field) == value, (name, field)


@pytest.mark.parametrize(
    ("fixed", "told"),
    [
        ("vit: {tp: 3}", "heads"),
        ("vit: {ranks: 0-7}", "no rank 7"),
        ("llm: {tp: 4, pp: 4}", "does not multiply"),
        ("vit: {dp: 3, ranks: 0-3}", "does not multiply"),
    ],
)
def test_what_cannot_be_is_a_located_error(tmp_path, fixed, told):
    with pytest.raises((InputError, Infeasible)) as caught:
        solved(seeing_job(tmp_path, fixed=fixed))
    assert told in caught.value.message
    assert caught.value.where and caught.value.fix


def test_text_alone_is_planned(tmp_path):
    plan = solved(seeing_job(tmp_path, rows=(40, 30), images="patches,row\n"))
    assert not violations(plan)


@pytest.mark.slow
@pytest.mark.parametrize("images", ["160,0\n160+80,3\n320,2\n", "1200,0\n200+560,3\n2000,4\n", "1600,0\n"])
def test_no_layouts_are_quicker_in_a_small_space(tmp_path, images):
    """Everything on two ranks without recomputation or ZeRO, by brute force."""
    fixed = "llm: {recompute: none, zero: 0, vpp: 1, cp: 1}, vit: {recompute: none, zero: 0, cp: 1}"
    inputs = seeing_job(tmp_path, ranks=2, fixed=fixed, images=f"patches,row\n{images}")
    best = modality_layout.plan(replace(inputs, effort=4), None)
    layout, vit = best.layouts["llm"], best.layouts["vit"]
    tried, trials = [], JointTrials(inputs)
    llms = [
        with_fields(layout, ranks=Ranks(range(n)), tp=tp, dp=dp, pp=pp, micro_batch=m, stages=stages, schedule=schedule)
        for n in (1, 2)
        for tp, dp, pp in product((1, 2), repeat=3)
        if tp * dp * pp == n
        for m in (1, 2, 4)  # as the space has them
        for stages, schedule in [((), None) if pp == 1 else (EVEN_STAGES, "1f1b")]
    ]
    for llm in llms:
        for ranks in (Ranks((0,)), Ranks((1,)), Ranks((0, 1))):
            if len({*llm.ranks} | {*ranks}) < 2:
                continue
            for tp, ahead, backward in product((1, 2), (0, 1, 2, 4), ("last", "at_once")):
                if len(ranks) % tp == 0:
                    timing = {"ahead": ahead, "backward": backward}
                    own = with_fields(vit, ranks=ranks, tp=tp, dp=len(ranks) // tp, pp=1, stages=(), **timing)
                    tried.append(trials.simulate({"llm": llm, "vit": own}, ""))
    assert len(tried) > 200
    assert best.outcome.value <= min(each.seconds for each in tried) * (1 + 1e-9)
