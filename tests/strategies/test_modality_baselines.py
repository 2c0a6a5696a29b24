"""Baselines of joint plans: named in every plan, they go back into a job and give the same; the plan is no slower."""

from dataclasses import replace

import pytest

from planner.errors import InputError
from planner.plan.descriptions import fixable_layout, flow_text, module_layout_text
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.specs.base import Layers, with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.parallelism import decided_fields
from planner.strategies.modality.baseline_trial import best_trial
from planner.strategies.modality.baselines import BASELINES, baseline_trials
from planner.strategies.modality.joint_candidates import JointSpace
from planner.strategies.modality.joint_search import JointTrials
from planner.strategies.modality.level_stages import batch_pricing, passes_seconds
from planner.strategies.modality_layout import plan as solve_jointly
from planner.strategies.static.layouts_plan import plan_together, priced_together
from tests.placed_jobs import MODEL, placed_job

OPEN = {"llm": "", "vit": "", "ear": ""}
DRAWN = """\
format: planner.job/1
name: drawn
model: ./model.yaml
cluster: cpu-4
profile: cpu
layout: {dtype: float64}
workload:
  lengths: {from: sample_mix, text: 40, images: {name: coco, each: 1}, multimodal: MULTIMODAL, text_only: TEXT}
  batch_rows: 12
  max_tokens: 40000
  module: llm
"""
RESIZE = "resize: {rule: smart, min_pixels: 64, max_pixels: 512}"


def inputs_of(folder, fixed=OPEN, **other):
    found = load_job(placed_job(folder, fixed, **{"layout": "{dtype: float64}", **other}), JobOptions())
    return replace(found, job=with_fields(found.job, strategy="modality_layout"))


def drawn_inputs(folder, multimodal, text):
    resized = MODEL.replace("merge: 2, out: 32}", f"merge: 2, out: 32, {RESIZE}}}")
    placed_job(folder, OPEN, model=resized)
    job = DRAWN.replace("MULTIMODAL", str(multimodal)).replace("TEXT", str(text))
    (folder / "drawn.yaml").write_text(job)
    return load_job(str(folder / "drawn.yaml"), JobOptions())


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    inputs = inputs_of(tmp_path_factory.mktemp("job"))
    return (
        inputs,
        solve_jointly(inputs, None),
        {each.kind: each for each in baseline_trials(JointTrials(inputs), JointSpace(inputs))},
    )


@pytest.mark.slow
def test_a_plan_names_every_baseline_and_is_no_slower(solved):
    _, plan, trials = solved
    told = {each.strategy: each for each in plan.alternatives if each.strategy in BASELINES}
    assert {*trials} == {*BASELINES}
    for name, trial in trials.items():
        assert plan.outcome.value <= trial.seconds
        if name not in told:  # it is the plan itself
            assert plan.layouts == trial.layouts and plan.outcome.value == trial.seconds
        else:
            far = "are looked at" in told[name].because
            assert told[name].value == (trial.seconds if trial.plan and not far else None)
            assert not far or trial.seconds > plan.outcome.value
    assert told["kept_stages"].value is None and "not drawn from one" in told["kept_stages"].because
    assert sum(bool(trial.plan) for trial in trials.values()) == len(BASELINES) - 1


@pytest.mark.soak
def test_alternatives_go_back_into_the_job_and_give_the_same(solved, tmp_path):
    """Or less: of fixed layouts two assignments of samples are simulated."""
    _, plan, trials = solved
    able = [each for each in plan.alternatives if each.value is not None]
    assert able
    for each in able:
        fixed = {name: flow_text(decided_fields(layout))[1:-1] for name, layout in each.layouts.items()}
        again, _ = priced_together(inputs_of(tmp_path, fixed))
        assert plan.outcome.value <= again.outcome.value <= each.value * (1 + 1e-12)
        if each.strategy in trials:
            trial = trials[each.strategy]
            assert again.layouts == trial.layouts and again.outcome.value <= trial.seconds


@pytest.mark.slow
def test_what_each_baseline_is(solved):
    inputs, _, trials = solved
    first, level = trials["encoder_first_stage"].layouts, trials["rebalanced_stages"].layouts
    for layouts in (first, level):
        llm = layouts["llm"]
        for name in ("vit", "ear"):
            assert layouts[name].ranks == stage_ranks(llm, 0) and layouts[name].tp == llm.tp
    apart = trials["equal_dp_apart"].layouts
    assert len({layout.dp for layout in apart.values()}) == 1
    assert {layout.tp * layout.cp for layout in apart.values()} == {1}
    assert sorted(rank for layout in apart.values() for rank in layout.ranks) == list(range(inputs.cluster.size))
    for layout in trials["fsdp_all"].layouts.values():
        assert layout.zero == 3 and layout.dp == len(layout.ranks) == inputs.cluster.size


@pytest.mark.slow
def test_rebalanced_stages_are_never_slower_than_even_ones(tmp_path):
    inputs = drawn_inputs(tmp_path, 9, 1)
    found = {each.kind: each for each in baseline_trials(JointTrials(inputs), JointSpace(inputs))}
    assert found["rebalanced_stages"].plan
    assert found["rebalanced_stages"].seconds <= found["encoder_first_stage"].seconds


def test_a_pass_over_packed_items_is_launched_once(tmp_path):
    """So packs take less than their items by themselves, and all of them no less than one pack of all."""
    inputs = drawn_inputs(tmp_path, 9, 1)
    layouts = next(BASELINES["encoder_first_stage"](JointSpace(inputs)))
    pricing, sizes = batch_pricing(inputs, layouts), inputs.batches[0].streams["vit"]
    layers, replicas = Layers(range(pricing.models["vit"].layers)), layouts["vit"].dp
    seconds = [passes_seconds(pricing, "vit", layers, sizes, passes) for passes in (1, 2, len(sizes))]
    assert len(sizes) > 2 * replicas
    assert seconds[0] < seconds[1] < seconds[2]


@pytest.mark.slow
def test_stages_are_kept_from_the_mix_of_halves(tmp_path):
    """Of a batch of that mix, they are those that are rebalanced for it; of another they are the same."""
    halves, many = drawn_inputs(tmp_path, 5, 5), drawn_inputs(tmp_path, 9, 1)
    kept = [
        best_trial(JointTrials(each), "kept_stages", BASELINES["kept_stages"](JointSpace(each)))
        for each in (halves, many)
    ]
    trials = {each.kind: each for each in baseline_trials(JointTrials(halves), JointSpace(halves))}
    level = trials["rebalanced_stages"]
    assert level.plan and kept[0].layouts == level.layouts and kept[0].seconds == level.seconds
    assert kept[1].layouts["llm"].stages == level.layouts["llm"].stages
    assert kept[1].plan.uses.items != kept[0].plan.uses.items


def test_what_a_job_fixes_is_kept_or_named(tmp_path):
    """A baseline that would have to change a fixed field is impossible, and says which."""
    inputs = inputs_of(tmp_path, OPEN | {"vit": "dp: 4"})
    trials = {each.kind: each for each in baseline_trials(JointTrials(inputs), JointSpace(inputs))}
    for trial in trials.values():
        assert trial.because if trial.plan is None else trial.layouts["vit"].dp == 4
    assert trials["fsdp_all"].plan and trials["equal_dp_apart"].plan is None


@pytest.mark.slow
def test_a_job_can_fix_uneven_stages(tmp_path):
    fixed = {"llm": "pp: 2, stages: [0, 1-3]", "vit": "ranks: first_stage", "ear": "ranks: first_stage"}
    plan = plan_together(inputs_of(tmp_path, fixed))
    assert [len(layers) for layers in plan.layouts["llm"].stages] == [1, 3]
    assert ", stages: [0, 1-3]" in module_layout_text(plan, "llm")
    assert fixable_layout(plan.layouts["llm"]).stages == plan.layouts["llm"].stages
    even = plan_together(inputs_of(tmp_path, fixed | {"llm": "pp: 2, stages: [0-1, 2-3]"})).layouts["llm"]
    assert fixable_layout(even).stages is None
    assert even == plan_together(inputs_of(tmp_path, fixed | {"llm": "pp: 2"})).layouts["llm"]
    with pytest.raises(InputError, match="2 stages for pp · vpp = 4"):
        plan_together(inputs_of(tmp_path, fixed | {"llm": "pp: 4, stages: [0, 1-3]"}))
    with pytest.raises(InputError, match="layer 1 in no stage"):
        plan_together(inputs_of(tmp_path, fixed | {"llm": "pp: 2, stages: [0, 2-3]"}))
    named = solve_jointly(inputs_of(tmp_path, OPEN | {"llm": "pp: 2, stages: [0, 1-3]"}), None)
    assert named.layouts["llm"].stages == plan.layouts["llm"].stages and named.made.strategy == "modality_layout"
