"""Searches where distance from what was measured counts for much: what is chosen, and what is said of the others."""

import sys
from dataclasses import replace

import pytest

from planner import pipeline
from planner.cli.views.why_tables import doubt_text
from planner.errors import Infeasible
from planner.plan.plan_file import Plan
from planner.scoring import nearest_run, plan_doubt, ranked_alternatives
from planner.scoring.nearest_run import NearestRun
from planner.solve_job import with_asked
from planner.specs.base import with_fields
from planner.strategies import STRATEGIES, parallel_search
from planner.strategies.best import best_of_candidates
from planner.strategies.modality.joint_alternatives import joint_alternatives
from planner.strategies.modality.joint_search import JointSearch, JointTrials
from planner.strategies.solved_job import SolvedJob
from planner.strategies.static.tried_layouts import TriedLayouts
from planner.units import percent
from tests.static_jobs import small_cluster, static_inputs

COUNTED = sys.modules[NearestRun.__module__]
FAR = (
    0.6  # of the half-width a step, in place of 0.04: a layout two steps farther is expected to take 1.5 times as long
)


@pytest.fixture
def counted(monkeypatch):
    """Sets what a step of distance adds to an interval."""
    return lambda spread: monkeypatch.setattr(COUNTED, "SPREAD_A_STEP", spread)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    given = static_inputs(folder, "llama-3-8b", small_cluster(folder, "h100-80gb", 8), [32768] * 8)
    return replace(given, job=with_fields(given.job, within=0.0), effort=2)  # enough to look at what is passed over


@pytest.fixture(scope="module")
def quickest(inputs):
    """The plan where distance adds nothing to an interval."""
    return planned_with(0.0, inputs)


@pytest.fixture(scope="module")
def surest(inputs):
    """The plan where it adds much."""
    return planned_with(FAR, inputs)


def planned_with(spread: float, inputs) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(COUNTED, "SPREAD_A_STEP", spread)
        return parallel_search.plan(inputs, None)


def others(plan: Plan):
    """What else fits, and computes as the plan does."""
    return [each for each in plan.alternatives if each.value is not None and "numerics" not in each.because]


@pytest.mark.slow
def test_with_no_more_doubt_of_one_than_of_another_the_quickest_is_chosen(quickest, counted):
    counted(0.0)
    plan = quickest
    assert plan_doubt(plan) == 1.0
    assert all(
        each.value >= plan.outcome.value and "quicker by prediction" not in each.because for each in others(plan)
    )


@pytest.mark.slow
def test_what_is_passed_over_in_doubt_is_named_and_bound_and_gap_are_of_predictions(quickest, surest, counted):
    counted(FAR)
    plan = surest
    assert plan.outcome.value > quickest.outcome.value and nearest_run(plan).distance < nearest_run(quickest).distance
    assert plan.outcome.bound == quickest.outcome.bound <= quickest.outcome.value
    assert plan.outcome.gap == pytest.approx(plan.outcome.value / plan.outcome.bound - 1.0)
    passed = [each for each in others(plan) if "quicker by prediction" in each.because]
    assert passed[0].value == quickest.outcome.value
    for each in others(plan):
        assert (each in passed) == (each.value < plan.outcome.value)
        expected = each.value * plan_doubt(plan, each.layouts)
        assert expected >= plan.outcome.value * plan_doubt(plan) * (1 - 1e-9)


@pytest.mark.slow
def test_what_was_passed_over_takes_what_the_plan_says_when_it_is_fixed(inputs, surest, counted):
    counted(FAR)
    passed = next(each for each in others(surest) if "quicker" in each.because)
    fixed = replace(inputs, job=with_fields(inputs.job, fix=with_fields(inputs.job.fix, layouts=passed.layouts)))
    assert parallel_search.plan(fixed, None).outcome.value == passed.value


@pytest.mark.soak
def test_why_not_agrees_that_what_was_passed_over_saves_and_is_expected_to_take_longer(inputs, surest, counted):
    counted(FAR)
    plan = with_asked(surest, inputs.job)
    passed = next(each for each in others(plan) if "quicker by prediction" in each.because)
    (layout,) = passed.layouts.values()
    words = tuple(f"{name}={getattr(layout, name) or 1}" for name in ("tp", "cp", "pp", "zero", "micro_batch"))
    answer = pipeline.why_not(plan, words)
    assert answer.after.value == pytest.approx(passed.value) and answer.again == pytest.approx(plan.outcome.value)
    longer = answer.after.expected / answer.before.expected - 1.0
    assert answer.seconds < 0.0 < longer
    assert f"expected to take {percent(longer)} longer" in doubt_text(answer)
    counted(0.0)
    assert doubt_text(pipeline.why_not(plan, words)) == ""


@pytest.mark.slow
def test_a_tie_that_is_predicted_quicker_is_worth_a_measurement(surest, counted):
    counted(FAR)
    plan = surest
    quicker = [each for each in ranked_alternatives(plan) if "quicker by prediction" in each.tried.because]
    assert quicker[0].change < 0.0
    near = with_fields(quicker[0].tried, value=0.99 * plan.outcome.value)
    assert ranked_alternatives(with_fields(plan, alternatives=(near,)))[0].tie


def test_the_best_of_strategies_is_the_one_expected_to_be(inputs, surest, counted):
    """Two candidates, of which the quicker one's plan is far from everything."""
    counted(FAR)
    near = surest
    (name, own), value = next(iter(near.layouts.items())), near.outcome.value
    layouts = {name: with_fields(own, cp=8 * own.cp)}
    far = with_fields(near, layouts=layouts, outcome=with_fields(near.outcome, value=0.99 * value))
    assert plan_doubt(far) * 0.99 > plan_doubt(near)

    def solved(by: dict[str, Plan]):
        job = replace(inputs, job=with_fields(inputs.job, strategy="best"))
        asked = {each: (lambda _, each=each: SolvedJob(by.get(each, by["others"]), (1.0,))) for each in NAMES}
        return best_of_candidates(job, asked, STRATEGIES).plan

    plan = solved({"others": near, "sequence_groups": far})
    assert plan.outcome.value == value and plan.outcome.bound <= far.outcome.bound
    passed = [each for each in plan.alternatives if each.value == pytest.approx(0.99 * value)]
    assert passed and all(each.launchable and "quicker by prediction" in each.because for each in passed)
    surer = with_fields(near, outcome=with_fields(near.outcome, value=0.99 * value))
    assert solved({"others": near, "sequence_groups": surer}).outcome.value == pytest.approx(0.99 * value)


NAMES = ("parallel_search", "sequence_groups", "data_ranks", "pipeline_order")


def test_of_joint_layouts_too(inputs, surest, counted):
    counted(FAR)
    near = surest
    (name, own), seconds = next(iter(near.layouts.items())), near.outcome.value
    far = with_fields(near, layouts={name: with_fields(own, cp=8 * own.cp)})
    done = JointSearch(trials=JointTrials(inputs), most=2, priced=2)
    done.tried = {
        "far": TriedLayouts(dict(far.layouts), "llm", far, 0.99 * seconds),
        "near": TriedLayouts(dict(near.layouts), "llm", near, seconds),
    }
    assert done.best is done.tried["far"] and done.chosen is done.tried["near"]
    (said,) = joint_alternatives(done, done.chosen)
    assert said.value == 0.99 * seconds and "quicker by prediction" in said.because
    done.refuse(done.tried["near"], Infeasible("too much", where="memory", fix="less"))
    assert done.chosen is done.best is done.tried["far"]
