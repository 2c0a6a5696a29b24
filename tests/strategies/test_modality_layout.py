"""Encoders and LLM planned together: legal plans with what the job fixes, none slower than any layouts by hand."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from planner.errors import Infeasible, InputError
from planner.plan.descriptions import unused_ranks_text
from planner.plan.legal.plan_laws import violations
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout
from planner.scoring import score
from planner.simulate import waits_for_modules
from planner.solve_job import solve_job
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.strategies import modality_layout
from planner.strategies.assignment.encoder_orders import EncoderOrder
from planner.strategies.modality.joint_candidates import JointSpace, joint_candidates, llm_rank_sets
from planner.strategies.modality.joint_changes import neighbours
from planner.strategies.modality.joint_errors import least_bytes
from planner.strategies.modality.joint_search import JointTrials
from tests.modality_jobs import seeing_job

NO_CALLBACK = lambda *_: None  # noqa: E731


def solved(inputs):
    return solve_job(inputs, NO_CALLBACK).plan


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return solved(seeing_job(tmp_path_factory.mktemp("job")))


@pytest.mark.slow
def test_a_plan_is_legal_and_its_numbers_are_its_own(plan):
    assert not violations(plan)
    assert plan.made.strategy == "modality_layout"
    assert plan.outcome.value == pytest.approx(score(plan).step_seconds, rel=1e-8)
    assert plan.outcome.bound <= plan.outcome.value


FIXED = (  # every field, every kind of ranks
    "llm: {pp: 2}, vit: {dp: 4}",
    "llm: {tp: 2, ranks: 2-3}, vit: {ranks: 0-1, dp: 2}",
    "llm: {micro_batch: 2}, vit: {micro_batch: 1, ranks: first_stage, recompute: full}",
)
LESS = ("vit: {ranks: 0-3, zero: 0}", "vit: {tp: 2}", "vit: {ranks: 3}", "llm: {ranks: 0-1}")


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [*FIXED, *(pytest.param(each, marks=pytest.mark.soak) for each in LESS)])
@pytest.mark.every(2)
def test_what_a_job_fixes_is_kept(tmp_path, fixed):
    inputs = seeing_job(tmp_path, fixed=fixed)
    plan = solved(inputs)
    for name, wanted in inputs.job.fix.layouts.items():
        for field in wanted.__struct_fields__:
            value = getattr(wanted, field)
            if isinstance(value, Ranks) or (value is not None and field != "ranks"):
                assert getattr(plan.layouts[name], field) == value, (name, field)


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["", pytest.param(", vit: {recompute: full}", marks=pytest.mark.soak)])
@pytest.mark.every(2)
def test_ranks_beside_those_of_the_llm_are_never_in_the_way(tmp_path, encoder):
    """They may have no module: a plan on the LLM's own ranks is one on more of them, too."""
    alone, beside = (
        solved(seeing_job(tmp_path, ranks, f"llm: {{ranks: 0-1, tp: 2, zero: 1}}{encoder}")) for ranks in (2, 3)
    )
    assert not violations(beside)
    assert beside.outcome.value <= alone.outcome.value * (1 + 1e-9)
    assert beside.outcome.bound <= alone.outcome.value


@pytest.mark.slow
def test_a_rank_without_a_module_is_named_and_waits_for_nothing(tmp_path):
    plan = solved(seeing_job(tmp_path, 3, "llm: {ranks: 0-1, tp: 2, zero: 1}, vit: {ranks: 0-1, tp: 1, zero: 1}"))
    assert not violations(plan)
    assert unused_ranks_text(plan) == "rank 2: no module is there"
    assert waits_for_modules(score(plan).timeline, [2]) == {2: []}


def llm_ranks(job: str, ranks: int | None = None) -> list[int]:
    """How many ranks the LLM of a shipped job may have, where nothing is fixed and so many are there."""
    inputs = load_job(job, JobOptions())
    group = with_fields(inputs.cluster.ranks[0], count=ranks or inputs.cluster.size)
    cluster = with_fields(inputs.cluster, ranks=(group,))
    free = with_fields(inputs.job, fix=with_fields(inputs.job.fix, layouts={}))
    return [len(each) for each in llm_rank_sets(JointSpace(replace(inputs, job=free, cluster=cluster)))]


@pytest.mark.slow
def test_an_llm_leaves_ranks_that_divide_badly_and_has_whole_nodes():
    """17 GPUs are 16 and one; of 34, encoders apart have two, or nodes and two, so that the LLM has nodes."""
    assert llm_ranks("qwen3.5-27b-h100x17")[:2] == [17, 16]
    every, *fewer = llm_ranks("qwen2.5-vl-72b-h100x128", 34)
    assert every == 34 and 32 in fewer and not any(each % 8 for each in fewer)
    assert llm_ranks("qwen2.5-vl-7b-a100x32")[0] == 32  # a power of two divides well: what it leaves, encoders have


@pytest.mark.parametrize(("trained", "recomputes"), [("", True), ("trained: {vit: none}\n", False)])
@pytest.mark.every(2)
def test_what_only_runs_forward_recomputes_nothing(tmp_path, trained, recomputes):
    """Where memory is short an encoder recomputes, unless it keeps nothing that a recomputation would spare."""
    rows, images = (11000, 11000, 300, 11000, 500), "patches,row\n40000,0\n40000,1\n40000,3\n"
    more = f"limits: {{memory_margin: 0.7, oom_chance: 1.0}}\n{trained}"
    candidates = joint_candidates(JointSpace(seeing_job(tmp_path, rows=rows, images=images, more=more)))
    encoders = [each.layouts["vit"] for each in candidates]
    assert encoders and any(each.recompute != "none" or each.offload for each in encoders) == recomputes
    fixed = joint_candidates(JointSpace(seeing_job(tmp_path, fixed="vit: {recompute: full}", more=trained)))
    assert {each.layouts["vit"].recompute for each in fixed} == {"full"}  # a job that says so is kept


def test_no_change_shards_over_a_rank_alone(tmp_path):
    """Of layouts with one replica all ZeRO stages are the same: a search that tries each finds the same plan again."""
    inputs = seeing_job(tmp_path, fixed="llm: {tp: 4}")
    seen = 0
    for candidate in joint_candidates(JointSpace(inputs)):
        for each in neighbours(inputs, candidate.layouts):
            for name, layout in candidate.layouts.items():
                alone = layout.dp * layout.cp == 1
                assert not alone or each[name].zero == layout.zero
                seen += alone
    assert seen


@pytest.mark.slow
def test_micro_batches_of_every_module_are_those_of_the_samples(tmp_path):
    inputs = seeing_job(tmp_path)
    layout = with_fields(inputs.job.layout, micro_batch=2)
    plan = solved(replace(inputs, job=with_fields(inputs.job, layout=layout)))
    assert (plan.layouts["llm"].micro_batch, plan.layouts["vit"].micro_batch) == (2, 1)


@pytest.mark.parametrize(
    ("fixed", "told"),
    [
        ("vit: {tp: 3}", "heads"),
        ("vit: {ranks: 0-7}", "no rank 7"),
        ("llm: {tp: 4, pp: 4}", "does not multiply"),
        ("vit: {dp: 3, ranks: 0-3}", "does not multiply"),
        ("vit: {vpp: 2, schedule: zb_h1}", "one chunk a rank"),
        ("vit: {micro_batch: 2}", "no micro-batches of its own"),
    ],
)
@pytest.mark.every(2)
def test_what_cannot_be_is_a_located_error(tmp_path, fixed, told):
    with pytest.raises((InputError, Infeasible)) as caught:
        solved(seeing_job(tmp_path, fixed=fixed))
    assert told in caught.value.message
    assert caught.value.where and caught.value.fix


@pytest.mark.slow
def test_text_alone_is_planned(tmp_path):
    plan = solved(seeing_job(tmp_path, rows=(40, 30), images="patches,row\n"))
    assert not violations(plan)


IMAGES = ("160,0\n160+80,3\n320,2\n", "1200,0\n200+560,3\n2000,4\n", "1600,0\n")
PLAIN = "llm: {recompute: none, zero: 0, vpp: 1, cp: 1}, vit: {recompute: none, zero: 0, cp: 1, pp: 1}"


@pytest.mark.slow
@pytest.mark.parametrize("images", [IMAGES[0], *(pytest.param(each, marks=pytest.mark.soak) for each in IMAGES[1:])])
@pytest.mark.every(2)
def test_no_layouts_are_quicker_on_two_ranks(tmp_path, images):
    assert by_brute_force(tmp_path, 2, images) > 150


@pytest.mark.soak
@pytest.mark.parametrize("images", IMAGES)
def test_no_layouts_are_quicker_on_four_ranks(tmp_path, images):
    assert by_brute_force(tmp_path, 4, images) > 1000


def by_brute_force(folder, ranks: int, images: str) -> int:
    """Everything without recomputation or ZeRO on so many ranks: how many layouts were tried, none of them quicker than
    the strategy's.
    """
    inputs = seeing_job(folder, ranks=ranks, fixed=PLAIN, images=f"patches,row\n{images}")
    best = modality_layout.plan(replace(inputs, effort=4), None)
    trials, vit = JointTrials(inputs), best.layouts["vit"]
    tried = [
        trials.simulate({"llm": llm, "vit": own}, {"vit": order}, "")
        for llm in decoder_layouts(best.layouts["llm"], ranks)
        for own in encoder_layouts(vit, llm, ranks)
        for order in [EncoderOrder(1, *each) for each in product((0, 1, 4), (False, True))]
    ]
    assert best.outcome.value <= min(each.seconds for each in tried) * (1 + 1e-9)
    return len(tried)


def decoder_layouts(layout: Layout, ranks: int) -> Iterator[Layout]:
    """On the first ranks, with every degree that divides; micro-batches and stages as the space has them."""
    for tp, dp, pp in product((1, 2, 4), (1, 2, 3, 4), (1, 2, 4)):
        if tp * dp * pp > ranks:
            continue
        each = 4 // pp
        stages = tuple(Layers(range(first, first + each)) for first in range(0, 4, each)) if pp > 1 else ()
        placed = with_fields(layout, ranks=Ranks(range(tp * dp * pp)), tp=tp, dp=dp, pp=pp, stages=stages)
        for micro_batch in (1, 2, 4):
            yield with_fields(placed, micro_batch=micro_batch, schedule="1f1b" if pp > 1 else None)


def encoder_layouts(layout: Layout, llm: Layout, ranks: int) -> Iterator[Layout]:
    """On all ranks, on those of the LLM or of its first stage, or on those that it leaves."""
    every, left = Ranks(range(ranks)), Ranks(rank for rank in range(ranks) if rank not in {*llm.ranks})
    places = [every] if not left else [every, left]
    places += [] if left else [stage_ranks(llm, 0)]
    for tp, own in product((1, 2, 4), dict.fromkeys(places)):
        if len(own) % tp == 0:
            placed = {"ranks": own, "tp": tp, "dp": len(own) // tp, "pp": 1, "stages": ()}
            yield with_fields(layout, **placed)


def test_layouts_that_a_job_says_are_tried_where_the_closed_form_has_no_room_for_all(tmp_path):
    """It knows no assignment: a plan that it would refuse goes back in as printed, and the simulation decides."""
    wholly, mostly = "llm: {dp: 4, zero: 1}, vit: {dp: 4, zero: 1, ranks: 0-3}", "llm: {dp: 4, zero: 1}"
    roomy = JointSpace(seeing_job(tmp_path, fixed=wholly))
    ((kind, device),) = roomy.inputs.devices.items()
    each = [least_bytes(roomy, name) for name in ("llm", "vit")]
    between = (max(each) + sum(each) - roomy.context) / 2.0
    tight = {kind: with_fields(device, memory_gib=device.memory_gib * between / roomy.allowed)}
    assert joint_candidates(JointSpace(replace(roomy.inputs, devices=tight)))
    some = joint_candidates(JointSpace(replace(seeing_job(tmp_path, fixed=mostly), devices=tight)))
    assert some and all(each.crowded for each in some)
