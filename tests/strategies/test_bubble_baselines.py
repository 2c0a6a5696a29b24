"""Baselines of encoders in gaps: cuts of a chain that no others better, legal plans with a value whatever is fixed."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plan.legal.plan_laws import require_legal
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.scoring import with_score
from planner.specs.inputs import JobOptions, load_job
from planner.strategies.bubbles import baseline_alternatives
from planner.strategies.bubbles.bubble_baselines import bubble_baselines, fixing_of_baselines
from planner.strategies.bubbles.chain_parts import level_parts
from planner.strategies.modality.first_stage_baselines import encoder_first_stage
from planner.strategies.modality.joint_candidates import JointSpace
from planner.strategies.static import plan_of_layouts
from planner.strategies.static.placement import placed_layouts
from tests.examples import examples
from tests.modality_jobs import seeing_job

NAMES = ["encoder_first_stage", "rebalanced_stages", "balanced_stages"]
FIXED = "llm: {tp: 1, pp: 2, vpp: 2, micro_batch: 1, ranks: 0-3}, vit: {tp: 1, pp: 1, ranks: 0-3}"
ROWS = (400,) * 8
IMAGES = "patches,row\n" + "".join(f"1200,{row}\n" for row in range(8))


@examples(200)
@given(st.lists(st.floats(0.01, 10.0), min_size=1, max_size=9), st.data())
def test_no_cuts_have_a_shorter_longest_part(seconds, data):
    parts = data.draw(st.integers(1, len(seconds)))
    found = level_parts(seconds, parts)
    assert [layer for part in found for layer in part] == [*range(len(seconds))] and len(found) == parts and all(found)
    every = (
        max(sum(seconds[first:last]) for first, last in pairwise((0, *cuts, len(seconds))))
        for cuts in combinations(range(1, len(seconds)), parts - 1)
    )
    assert max(sum(seconds[layer] for layer in part) for part in found) == pytest.approx(min(every))


@given(st.integers(1, 9), st.integers(1, 9))
def test_equal_layers_are_cut_evenly(layers, parts):
    sizes = {len(part) for part in level_parts([1.0] * max(layers, parts), parts)}
    assert max(sizes) - min(sizes) <= 1


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    inputs = seeing_job(tmp_path_factory.mktemp("job"), fixed=FIXED, rows=ROWS, images=IMAGES)
    layouts = placed_layouts(inputs, True)
    return inputs, layouts, {each.kind: each for each in bubble_baselines(inputs, layouts)}


def test_each_is_legal_and_has_a_value_though_the_job_fixes_other_places(found):
    """And keeps what the module computes: the LLM's degrees, and its micro-batches."""
    _, layouts, trials = found
    assert [*trials] == NAMES
    for trial in trials.values():
        assert trial.plan and trial.seconds > 0.0, trial.because
        require_legal(trial.plan, trial.kind)
        for field in ("tp", "pp", "dp", "zero", "micro_batch", "ranks"):
            assert getattr(trial.layouts["llm"], field) == getattr(layouts["llm"], field)


def test_where_each_has_its_encoder(found):
    _, _, trials = found
    for name in NAMES[:2]:
        layouts = trials[name].layouts
        assert layouts["vit"].ranks == stage_ranks(layouts["llm"], 0)
    assert trials["encoder_first_stage"].layouts["llm"].vpp == 2
    balanced = trials["balanced_stages"].layouts
    assert [len(part) for part in balanced["vit"].stages] == [1, 1]
    for stage in range(2):
        assert stage_ranks(balanced["vit"], stage) == stage_ranks(balanced["llm"], stage)


def test_uneven_stages_are_no_slower_than_even_ones(found):
    _, _, trials = found
    even = trials["encoder_first_stage"].seconds
    assert all(trials[name].seconds <= even for name in NAMES[1:])


@pytest.mark.slow
def test_a_plan_has_them_as_alternatives_with_their_seconds(found):
    inputs, layouts, trials = found
    plan = with_score(plan_of_layouts(inputs, layouts), "")
    told = {each.strategy: each for each in baseline_alternatives(inputs, plan)}
    assert {name: each.value for name, each in told.items()} == {name: trials[name].seconds for name in NAMES}


def test_without_a_pipeline_all_have_the_encoder_on_every_rank(tmp_path):
    inputs = seeing_job(tmp_path, ranks=2, fixed="llm: {tp: 2}, vit: {tp: 2}", rows=ROWS, images=IMAGES)
    trials = bubble_baselines(inputs, placed_layouts(inputs, True))
    assert all(each.plan and [*each.layouts["vit"].ranks] == [0, 1] for each in trials)


def test_a_large_encoder_beside_a_small_one_may_have_more_than_half_of_their_memory():
    inputs = load_job("optimus-vit22b-gpt175b-h100x3072-two-encoders", JobOptions())
    llm = placed_layouts(inputs, True)["llm"]
    layouts = next(encoder_first_stage(JointSpace(fixing_of_baselines(inputs, llm))))
    assert layouts["llm"] == llm and layouts["vision_22b"].ranks == layouts["vision_11b"].ranks == stage_ranks(llm, 0)
