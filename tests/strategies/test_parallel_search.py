"""The best static layout: as good as simulating all, within memory, legal; and what it says of the others."""

from dataclasses import replace
from itertools import product

import pytest

from planner import files, pipeline
from planner.errors import Infeasible, InputError
from planner.layouts.screening.layout_screening import closed_form_parts, screen
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_fields import SEARCHED_FIELDS, layout_of
from planner.layouts.space.layout_problem import fixed_fields, layout_problem
from planner.layouts.space.layout_space import layout_at, layout_space
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan, assignments
from planner.scoring.bounds.plan_space import plan_space_seconds
from planner.scoring.score import score
from planner.scoring.step_simulation import step_seconds
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.parallelism import Parallelism
from planner.strategies import parallel_search, unsupported
from planner.strategies.assignment.module_items import (
    assign_least_loaded,
)
from planner.strategies.one_module.simulated_layouts import simulate_layout
from planner.strategies.static.fixed_layout import fixed_layout, uneven_degrees
from planner.strategies.static.layouts_plan import draft_of_layouts
from tests.static_jobs import small_cluster, static_inputs, static_job

VARIED = [8192, 512, 3000, 700, 700, 256, 6000, 4096, 1024, 90, 128, 2048]


@pytest.fixture
def made(tmp_path):
    """Inputs of few ranks."""

    def write(ranks=8, sizes=(4096,) * 16, fixed="", model="llama-3-8b", kind="h100-80gb", kept=""):
        return static_inputs(tmp_path, model, small_cluster(tmp_path, kind, ranks), sizes, fixed, kept)

    return write


# ------------------------------------------------------------------------------------------------------- the space


@pytest.mark.slow
def test_ranks_that_divide_badly_are_left_out(made):
    """On 10 ranks tp and dp are 1, 2, 5 or 10, and replicas divide 16 samples: 8 of them are quicker. What is
    printed goes back in, and the bound is found again from the plan.
    """
    sizes, few = (4096,) * 16, "recompute: none, zero: 1, pp: 1, cp: 1"
    ten, eight, fixed = (
        parallel_search.plan(made(ranks, sizes, f"{few}{more}"), None)
        for ranks, more in ((10, ""), (8, ""), (10, ", ranks: 0-7"))
    )
    assert ten.layouts["llm"].ranks == Ranks(range(8)) and not violations(ten)
    assert ten.outcome.value == fixed.outcome.value <= eight.outcome.value * (1 + 1e-9)
    assert ten.layouts == fixed.layouts and fixed.outcome.bound <= fixed.outcome.value
    assert ten.outcome.bound == pytest.approx(min(plan_space_seconds(ten), ten.outcome.value), rel=1e-8)
    others = [each for each in ten.alternatives if "of 10 ranks" in each.because]
    assert all(each.value >= ten.outcome.value for each in others)
    assert all(each.layouts["llm"].ranks == Ranks(range(8)) for each in ten.alternatives if each not in others)


@pytest.mark.parametrize("ranks", ["2-5", "0-11", "first_stage"])
def test_ranks_of_a_module_alone_are_the_first_ones(made, ranks):
    with pytest.raises(InputError) as caught:
        parallel_search.plan(made(8, (4096,) * 8, f"ranks: {ranks}"), None)
    assert "its ranks are the first ones" in caught.value.message and "ranks" in caught.value.where


def brute_space(trained):
    ranks, layers, batch = trained.ranks, trained.module.layers, len(trained.sizes)
    degrees = [n for n in range(1, ranks + 1) if ranks % n == 0]
    for tp, cp, pp, vpp, mb in product(degrees, degrees, degrees, range(1, layers + 1), range(1, batch + 1)):
        if ranks % (tp * cp * pp) or pp * vpp > layers or (vpp > 1 and pp == 1):
            continue
        at_once = ranks // (tp * cp * pp) * mb
        chunks = pp * vpp
        even = layers % chunks == 0 or ((layers + 2) % chunks == 0 and (layers + 2) // chunks > 1)
        if batch % at_once or not even or (vpp > 1 and batch // at_once % pp):
            continue
        yield tp, cp, pp, vpp, mb


def test_no_layout_that_comes_out_even_is_left_out(made):
    trained = layout_problem(made()).trained
    fixed = Parallelism(zero=1, recompute="none", ulysses=1, replica=1)
    found = layout_space(trained, 8, fixed)
    names = ("tp", "cp", "pp", "vpp", "micro_batch")
    rows = sorted(zip(*(found[name].tolist() for name in names), strict=True))
    assert rows == sorted(brute_space(trained))
    assert len(set(rows)) == len(rows)


# ------------------------------------------------------------------------------------------------------- its plans


@pytest.mark.slow
@pytest.mark.parametrize(
    "fixed",
    [
        "tp: 2, pp: 2, zero: 1",
        "cp: 2, micro_batch: 2, zero: 3",
        "pp: 2, vpp: 4, tp: 2, zero: 0",
        "pp: 4, schedule: gpipe",
        "cp: 4",
    ],
)
@pytest.mark.parametrize("sizes", [(4096,) * 16, VARIED])
@pytest.mark.every(12)
def test_plans_are_legal_and_worth_what_they_say(made, fixed, sizes):
    plan = parallel_search.plan(made(8, sizes, f"{fixed}, recompute: full"), None)
    assert violations(plan) == []
    assert score(plan).step_seconds == pytest.approx(plan.outcome.value, rel=1e-8)
    assert plan.outcome.bound_by == "space" and plan.outcome.bound <= plan.outcome.value
    assert files.parse(files.dump(plan), Plan, "again") == plan


@pytest.mark.parametrize(("schedule", "sizes"), [("zb_h1", (4096,) * 32), ("zb_h2", VARIED)])
@pytest.mark.every(2)
def test_zero_bubble_is_planned_as_it_is_simulated(made, schedule, sizes):
    """Sooner than 1F1B in the same layout; nothing is recomputed where weights' gradients wait for it."""
    fixed = "tp: 2, pp: 4, zero: 0, micro_batch: 1, recompute: none"
    plain = parallel_search.plan(made(8, sizes, f"{fixed}, vpp: 1, schedule: 1f1b"), None)
    inputs = made(8, sizes, fixed.replace(", recompute: none", "") + f", schedule: {schedule}")
    plan = parallel_search.plan(inputs, None)
    assert violations(plan) == [] and plan.layouts["llm"].schedule == schedule and plan.steps[0].order == {}
    assert plan.layouts["llm"].recompute == "none"
    assert score(plan).step_seconds == pytest.approx(plan.outcome.value, rel=1e-8)
    assert plan.outcome.bound <= plan.outcome.value < plain.outcome.value


def numbers(**few):
    """Of a layout, what a search decides: all of it as usual but for these."""
    return {**dict.fromkeys(SEARCHED_FIELDS, 1), "zero": 0, "recompute": 0, **few}


@pytest.mark.parametrize("few", [{"tp": 2, "zero": 1}, {"pp": 2, "vpp": 2}, {"cp": 2, "zero": 3}, {"pp": 4, "tp": 2}])
@pytest.mark.parametrize("sizes", [(4096,) * 16, VARIED])
def test_replicas_that_do_alike_are_simulated_once(made, few, sizes):
    inputs = made(8, sizes)
    problem = layout_problem(inputs)
    plan = draft_of_layouts(inputs, {inputs.module: layout_of(problem.trained, numbers(**few))})
    assert step_seconds(plan) == pytest.approx(score(plan).step_seconds, rel=1e-12)


@pytest.mark.slow
def test_every_item_once_and_no_micro_batch_too_large(made):
    plan = parallel_search.plan(made(8, VARIED, "micro_batch: 2, tp: 2"), None)
    entries = [a for step in plan.steps for row in step.micro_batches for a in assignments(plan, row)]
    assert sorted(item for a in entries for item in a.items) == [*range(len(VARIED))]
    assert max(len(a.items) for a in entries) <= 2


def test_unequal_sequences_take_no_less_than_the_longest_alone(made):
    """What screening adds to the closed form of mean sequences; but for what hides exchange, of another length."""
    inputs = made(8, VARIED, "recompute: full, zero: 1")
    problem = layout_problem(inputs)
    screened = screen(problem, layout_space(problem.trained, 8, fixed_fields(inputs)))
    for place in range(0, len(screened.seconds), 97):
        layout = layout_at(problem.trained, screened.layouts, place)
        longest = replace(problem.trained, sizes=(max(VARIED),) * layout.dp)
        alone = closed_form_parts(replace(problem, trained=longest), with_fields(layout, micro_batch=1)).seconds
        assert simulate_layout(inputs, layout).seconds > 0.97 * float(alone)


def test_longest_first_to_who_has_least():
    assert assign_least_loaded([0, 1, 2, 3], {0: 5.0, 1: 3.0, 2: 2.0, 3: 1.0}, 2, 4) == [[0, 3], [1, 2]]
    assert assign_least_loaded([0, 1, 2, 3], {0: 9.0, 1: 1.0, 2: 1.0, 3: 1.0}, 2, 2) == [[0, 3], [1, 2]]


def test_what_is_fixed_is_kept(made):
    (layout,) = parallel_search.plan(
        made(fixed="tp: 4, pp: 2, vpp: 2, zero: 1, recompute: full"), None
    ).layouts.values()
    assert (layout.pp, layout.vpp, layout.dp, layout.tp) == (2, 2, 1, 4) and len(layout.stages) == 4
    assert (layout.zero, layout.recompute) == (1, "full")


@pytest.mark.slow
@pytest.mark.parametrize("words", ["zero: 3", "recompute: full", "zero: 1, recompute: selective"])
@pytest.mark.every(4)
def test_what_a_job_says_of_states_is_fixed_wherever_it_says_it(made, words):
    """Under `layout` as under `fix.layouts`: the same plan, which says it, and never one that beats a free search's."""
    here = parallel_search.plan(made(fixed="tp: 2, pp: 1", kept=words), None)
    there = parallel_search.plan(made(fixed=f"tp: 2, pp: 1, {words}"), None)
    assert with_fields(here, uses=with_fields(here.uses, sources={})) == with_fields(
        there, uses=with_fields(there.uses, sources={})
    )
    (layout,) = here.layouts.values()
    kept = dict(word.split(": ") for word in words.split(", "))
    assert {name: str(getattr(layout, name)) for name in kept} == kept
    free = parallel_search.plan(made(fixed="tp: 2, pp: 1"), None)
    assert free.outcome.quickest.value <= here.outcome.quickest.value * (1 + 1e-9)


@pytest.mark.slow
def test_what_is_fixed_of_a_module_goes_before_what_is_said_of_all(made):
    inputs = made(fixed="tp: 2, zero: 0, recompute: none", kept="zero: 3, recompute: full")
    (layout,) = parallel_search.plan(inputs, None).layouts.values()
    assert (layout.zero, layout.recompute) == (0, "none") == (fixed_fields(inputs).zero, fixed_fields(inputs).recompute)


# ---------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("mesh", ["pp: 1", "pp: 2, vpp: 1, schedule: 1f1b", "pp: 2, vpp: 4"])
@pytest.mark.parametrize("how", ["none", "selective", "full"])
@pytest.mark.every(3)
def test_what_a_job_offloads_is_left_out_of_memory(made, mesh, how):
    """Of equal sequences in one micro-batch, or a pipeline's, the closed form has the bytes of the simulated plan."""
    others = "tp: 1, cp: 1, replica: 1, zero: 1, micro_batch: 1, offload: 0.2"
    inputs = made(8, (4096,) * 32, f"{mesh}, recompute: {how}, {others}")
    problem = layout_problem(inputs)
    found = screen(problem, layouts_of(problem, fixed_fields(inputs)))
    (needed,) = found.bytes_needed
    simulated = score(
        draft_of_layouts(inputs, {inputs.module: layout_at(problem.trained, found.layouts, 0)})
    ).peak_bytes
    whole = replace(problem, trained=replace(problem.trained, fixed=with_fields(problem.trained.fixed, offload=0.0)))
    assert needed < screen(whole, found.layouts).bytes_needed[0]
    assert simulated <= needed * (1 + 1e-9)
    assert needed == pytest.approx(simulated, rel=0.02)


@pytest.mark.slow
def test_what_fits_by_offload_is_found(made):
    """Of 10240 tokens on a rank a fifth of the activations has to go to the host: without offload nothing fits. Where
    the job leaves it open, a little less is enough.
    """
    fixed = "recompute: none, tp: 1, cp: 1, pp: 1, zero: 3, micro_batch: 1"
    with pytest.raises(Infeasible):
        parallel_search.plan(made(8, (10240,) * 8, f"{fixed}, offload: 0"), None)
    least = parallel_search.plan(made(8, (10240,) * 8, fixed), None)
    assert 0.15 < least.layouts["llm"].offload < 0.25
    for share, fits in ((least.layouts["llm"].offload, True), (least.layouts["llm"].offload - 1e-4, False)):
        job = made(8, (10240,) * 8, f"{fixed}, offload: {share:.4f}")
        if fits:
            assert parallel_search.plan(job, None).outcome.value == least.outcome.value
        else:
            with pytest.raises(Infeasible):
                parallel_search.plan(job, None)
    plan = parallel_search.plan(made(8, (10240,) * 8, f"{fixed}, offload: 0.25"), None)
    assert plan.layouts["llm"].offload == 0.25 and plan.outcome.bound <= plan.outcome.value
    assert plan.outcome.effort.startswith("1 layouts priced, 0 excluded")


@pytest.mark.slow
def test_more_memory_is_never_worse(made):
    inputs = made(8, (8192,) * 16)
    kind = inputs.cluster.ranks[0].kind
    roomy = replace(inputs, devices={kind: with_fields(inputs.device, memory_gib=1000.0)})
    least, own = (parallel_search.plan(each, None).outcome.quickest.value for each in (roomy, inputs))
    assert least <= own * (1 + 1e-9)


def test_a_batch_that_does_not_come_out_even(made):
    with pytest.raises(Infeasible, match="divides 8 ranks and 3 sequences evenly"):
        parallel_search.plan(made(8, (4096,) * 3, "tp: 1, pp: 1, cp: 1"), None)


# ------------------------------------------------------------------------------------------------------ one layout


@pytest.mark.parametrize(
    ("fixed", "says"),
    [
        ("tp: 3", "does not divide 8 ranks"),
        ("vpp: 2", "vpp = 2 needs a pipeline"),
        ("ep: 2", "has no experts"),
        ("micro_batch: 3", "no multiple of dp"),
        ("tp: 2, pp: 4, schedule: interleaved", "vpp is 1"),
        ("pp: 8, vpp: 8", "more than 32 layers"),
        ("pp: 2, schedule: zb_h1, vpp: 2", "one chunk a rank"),
        ("pp: 2, schedule: zb_h1, recompute: selective", "for weights' gradients"),
    ],
)
def test_layouts_that_do_not_come_out_even_are_refused(made, fixed, says):
    with pytest.raises(InputError, match=says):
        fixed_layout(made(fixed=fixed))


def test_a_module_that_there_is_not(tmp_path):
    job = static_job(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", 8), [4096] * 8)
    text = (tmp_path / "job.yaml").read_text().replace("llm: {", "vit: {tp: 2")
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(InputError, match="has no module `vit`"):
        pipeline.fits(job)


@pytest.mark.parametrize("kept", ["tp: 3, dp: 5", "tp: 4, pp: 2, cp: 1, dp: 2", "pp: 1, tp: 2, cp: 1, dp: 2"])
@pytest.mark.every(3)
def test_degrees_that_do_not_multiply_up_are_named(tmp_path, kept):
    job = static_job(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h200", 8), [4096] * 16, kept=kept)
    with pytest.raises(InputError, match=r"dp \d.* does not multiply to 8 ranks"):
        pipeline.solve(job)


def test_experts_have_a_mesh_of_their_own(made):
    trained = layout_problem(made(model="qwen3-30b-a3b")).trained
    spread = numbers(tp=2, ep=4, etp=2)
    assert uneven_degrees(spread, trained) is None
    assert "does not divide the 8 ranks" in uneven_degrees(numbers(ep=16), trained)[0]
    layout = layout_of(trained, spread)
    assert (layout.ep, layout.etp) == (4, 2)


# -------------------------------------------------------------------------------------------------------- supports


def test_what_it_does_not_decide(tmp_path, made):
    assert unsupported("parallel_search", made()) is None
    assert unsupported("parallel_search", load_job("llama-3-8b-h100x32-a100x32", JobOptions())) is None
    assert "would be left out" in unsupported("parallel_search", made(model="qwen2.5-vl-7b"))
    inputs = made()
    assert "one batch" in unsupported("parallel_search", replace(inputs, batches=inputs.batches * 2))
    with pytest.raises(InputError, match="one batch") as refused:
        pipeline.decide(replace(inputs, batches=inputs.batches * 2))
    assert "--batches 1" in refused.value.fix


@pytest.mark.parametrize(
    "kept", ["schedule: gpipe, tp: 2, rank_order: tp-dp-pp", "schedule: zb_h1", "rank_order: tp-dp"]
)
@pytest.mark.every(3)
def test_what_a_job_says_of_schedule_and_order_is_kept(tmp_path, kept):
    """A schedule is of a pipeline, and the ranks are spread along the dims of the order alone."""
    job = static_job(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h200", 8), [4096] * 16, kept=kept)
    layout = pipeline.solve(job).plan.layouts["llm"]
    assert layout.schedule == (
        {"schedule: gpipe, tp: 2, rank_order: tp-dp-pp": "gpipe", "schedule: zb_h1": "zb_h1"}
    ).get(kept)
    assert (layout.pp > 1) == ("schedule" in kept)
    assert layout.cp == 1 or "order" not in kept


@pytest.mark.slow
def test_of_unequal_sequences_a_slower_layout_that_fits_is_found(made):
    """The quickest of its kind does not fit; others of it do."""
    inputs = made(8, [16384, *VARIED * 2], "pp: 4, micro_batch: 1")
    tight = replace(inputs, job=with_fields(inputs.job, limits=with_fields(inputs.job.limits, memory_margin=0.4)))
    problem = layout_problem(tight)
    found = layout_space(problem.trained, problem.machine.network.per_node, fixed_fields(tight))
    screened = screen(problem, found)
    fits = screened.fits(problem)
    assert fits.any() and not fits.all()
    assert not violations(parallel_search.plan(tight, None))
