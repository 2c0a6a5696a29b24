"""The plainest layout within the noise: never slower than the noise allows, never less plain than the quickest, and the
same layout whoever prices it.
"""

from dataclasses import replace

import numpy as np
import pytest

from planner.layouts import layout_points, layout_problem, layouts_of, screen, table_points
from planner.layouts.space.layout_space import layout_at
from planner.layouts.space.plainness import UNUSUAL, most_conventional
from planner.pipeline import plan_of, why_not
from planner.plan.plan_file import Layout
from planner.scoring import false_statements, score, with_bound_digest
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.inputs import JobOptions, load_job
from planner.specs.parallelism import Parallelism
from planner.strategies import parallel_search
from planner.strategies.static import fixing, predict_job
from tests.static_jobs import for_software, small_cluster, static_inputs, static_job

WITHIN = (0.0, 0.02, 0.2)
SIZES = [16384] * 8


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Layers that hardly fit, so that the quickest layout has something unusual."""
    folder = tmp_path_factory.mktemp("job")
    return static_inputs(folder, "llama-3-8b", small_cluster(folder, "h100-80gb", 8), SIZES, "replica: 1, cp: 1, pp: 1")


@pytest.fixture(scope="module")
def plans(inputs):
    """By how much the step may be longer."""
    return {share: parallel_search.plan(within(inputs, share), None) for share in WITHIN}


def within(inputs, share: float):
    return replace(inputs, job=with_fields(inputs.job, within=share))


def points(plan) -> int:
    (layout,) = plan.layouts.values()
    return layout_points(layout, plan.uses.software.knobs)


def test_the_plan_is_within_the_noise_of_the_quickest_and_the_bound_is_of_that(plans):
    for share, plan in plans.items():
        quickest, bound = plan.outcome.quickest.value, plan.outcome.bound
        assert bound <= quickest <= plan.outcome.value <= (1.0 + share) * quickest * (1 + 1e-9)
        assert plan.outcome.gap == pytest.approx(quickest / bound - 1.0)
        assert (plan.outcome.quickest, bound) == (plans[0.0].outcome.quickest, plans[0.0].outcome.bound)


def test_more_noise_never_gives_a_less_plain_layout_and_none_gives_the_quickest(plans):
    rising = [points(plans[share]) for share in WITHIN]
    assert rising == sorted(rising, reverse=True) and rising[0] > rising[-1]
    assert plans[0.0].outcome.value == plans[0.0].outcome.quickest.value


def test_layouts_beside_the_plan_take_what_it_says_when_they_are_fixed(inputs, plans):
    for beside in (plans[0.2].outcome.quickest, plans[0.2].outcome.conventional):
        assert predict_job(fixing(inputs, beside.layouts)).scores[0].step_seconds == pytest.approx(beside.value)


def test_the_conventional_layout_has_nothing_unusual_but_what_makes_it_fit(plans):
    ((_, conventional),) = plans[0.02].outcome.conventional.layouts.items()
    unusual = {name: getattr(conventional, name) for name in ("vpp", "offload", "rank_order", "stages", "schedule")}
    assert (conventional.micro_batch, conventional.zero) == (1, 1)
    assert {name: each for name, each in unusual.items() if each} in ({}, {"schedule": "1f1b"})


def test_the_same_job_gives_the_same_plan(inputs, plans):
    assert parallel_search.plan(within(inputs, 0.2), None) == plans[0.2]


@pytest.mark.slow
def test_a_plan_answers_for_its_noise_when_it_is_solved_again(inputs):
    plan = plan_of(within(inputs, 0.2))
    assert plan.uses.asked.within == 0.2 and plan.outcome.bound_over.startswith("all ")
    same = why_not(plan, ("effort=2",))
    assert same.again == pytest.approx(plan.outcome.value) and same.after.value == pytest.approx(plan.outcome.value)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda outcome: {"quickest": with_fields(outcome.quickest, value=2.0 * outcome.value)}, "outcome.quickest"),
        (lambda outcome: {"quickest": with_fields(outcome.quickest, value=0.7 * outcome.value)}, "outcome.quickest"),
        (lambda outcome: {"bound_over": "all layouts"}, "outcome.bound_over"),
        (lambda outcome: {"conventional": outcome.quickest}, "outcome.bound"),
    ],
)
def test_what_no_search_can_have_found_beside_a_plan_is_refused(plans, change, where):
    plan = with_bound_digest(plans[0.02])
    scores = [score(plan)]
    assert not [*false_statements(plan, scores)]
    edited = with_fields(plan, outcome=with_fields(plan.outcome, **change(plan.outcome)))
    assert where in {each.where for each in false_statements(edited, scores)}


def test_a_table_counts_what_each_of_its_layouts_has(inputs):
    problem = layout_problem(inputs)
    found = screen(problem, layouts_of(problem, Parallelism())).layouts
    counted = table_points(problem, found)
    for place in np.random.default_rng(0).choice(len(counted), 200, replace=False).tolist():
        layout = layout_at(problem.trained, found, place)
        assert counted[place] == layout_points(layout, problem.knobs), layout


EXPERTS = ("mixtral-8x7b", [4096] * 64)


@pytest.mark.slow
@pytest.mark.parametrize("software", ["megatron", "torchtitan", "any"])
@pytest.mark.parametrize(
    ("model", "sizes"), [("llama-3-8b", [8192] * 64), pytest.param(*EXPERTS, marks=pytest.mark.soak)]
)
@pytest.mark.every(4)
def test_with_any_framework_the_plan_is_no_less_plain_than_the_quickest_and_within_the_noise(
    model, sizes, software, tmp_path
):
    cluster = small_cluster(tmp_path, "h100-80gb", 16)
    given = load_job(for_software(static_job(tmp_path, model, cluster, sizes, kept=""), software), JobOptions())
    quickest, plan = (parallel_search.plan(within(given, share), None) for share in (0.0, 0.02))
    assert points(plan) <= points(quickest) and plan.outcome.bound <= quickest.outcome.value
    assert plan.outcome.value <= 1.02 * quickest.outcome.value and plan.outcome.gap == quickest.outcome.gap


PLAIN = Layout(ranks=Ranks(range(64)), dp=64)


@pytest.mark.parametrize(
    "fields",
    [
        {"tp": 8}, {"cp": 8}, {"pp": 8}, {"etp": 2}, {"replica": 8}, {"vpp": 4, "pp": 2}, {"zero": 3}, {"offload": 0.5},
        {"optimizer_offload": 0.5}, {"recompute": "full"}, {"recompute": ("moe",)}, {"overlap": ("ep",)},
        {"schedule": "zb_h1", "pp": 2}, {"dispatch": "node_level"}, {"micro_batch": 3}, {"cp": 8, "ulysses": 2},
        {"pp": 2, "stages": (Layers((0,)), Layers((1, 2, 3)))}, {"pp": 2, "rank_order": "pp-tp-cp-dp-replica"},
    ],
    ids=str,
)  # fmt: skip
def test_each_unusual_field_has_points_and_a_reason(fields):
    usual = {name: fields[name] for name in ("pp", "cp") if name in fields and len(fields) > 1}
    plain = with_fields(PLAIN, **usual)
    assert layout_points(with_fields(PLAIN, **fields), Knobs()) > layout_points(plain, Knobs())
    assert layout_points(PLAIN, Knobs()) == 0 and all(because for _, because in UNUSUAL.values())


def test_of_frameworks_that_shard_weights_recomputation_comes_before_more_dimensions(inputs):
    problem = layout_problem(inputs)
    sharded = replace(problem, knobs=with_fields(problem.knobs, zero=(0, 2, 3)))
    found = screen(problem, layouts_of(problem, Parallelism()))
    able = found.fits(problem)
    places = [most_conventional(each, found.layouts, able) for each in (problem, sharded)]
    told = [layout_at(problem.trained, found.layouts, place) for place in places]
    assert (told[0].recompute, told[0].zero) == ("none", 1) and (told[1].tp, told[1].pp, told[1].zero) == (1, 1, 3)
