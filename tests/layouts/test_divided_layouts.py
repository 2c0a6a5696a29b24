"""Layers divided over pipelines: no division of any layout is below the bound, nor quicker than the pick."""

import random
from dataclasses import replace
from itertools import combinations, pairwise
from math import inf

import numpy as np
import pytest

from planner.errors import Infeasible, InputError
from planner.layouts import fixed_fields, layout_problem, layouts_of, screen, with_joint_fields
from planner.layouts.bounds.divided_layouts import neighbours, spread_stages, with_enough
from planner.layouts.bounds.split_bound import least_divided
from planner.layouts.space.layout_space import layout_at
from planner.scoring import plan_space_seconds
from planner.specs.base import Layers, with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.named_files import read_software
from planner.specs.parallelism import Parallelism
from planner.strategies import parallel_search
from planner.strategies.one_module.simulated_layouts import simulate_layout
from planner.strategies.static.static_prediction import predict_job
from tests.examples import share
from tests.static_jobs import for_software, small_cluster, static_inputs, static_job

MODEL = """\
format: planner.model/1
name: few-layers
source: made up, with layers and a head as wide as Llama's
modules:
  llm:
    {{kind: decoder, layers: {layers}, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocab: 128256, gated: true,
     norm: rms, bias: none, positions: rope, tied: false{more}}}
"""
EXPERTS = ", moe: {experts: 8, topk: 2, ffn: 3584, dense_layers: 2}"
NEAR = 1.005  # of the quickest by brute force
TRIED = share(60)  # layouts of a job
SOFTWARE = ("megatron", "any", "torchtitan", "nemo")
GRID = {
    "tp": (1, 2, 4), "cp": (1, 1, 2, 4), "pp": (1, 2, 3, 4), "vpp": (1, 2), "zero": (0, 1, 2, 3),
    "micro_batch": (1, 2, 3, 4), "recompute": ("none", "selective", "full", ("mlp",), {0: "full"}),
    "overlap": ((), ("tp",)), "offload": (0.0, 0.05, 0.2), "optimizer_offload": (0.0, 0.5),
}  # fmt: skip


def few_layers(folder, layers, ranks, sizes, software, **said):
    """A job of a model with few layers; `said`: fields that it fixes, and what its layers have more."""
    (folder / "model.yaml").write_text(MODEL.format(layers=layers, more=said.get("more", "")))
    cluster = small_cluster(folder, "h100-80gb", ranks)
    job = static_job(folder, "./model.yaml", cluster, sizes, said.get("fixed", ""), "")
    return load_job(for_software(job, software), JobOptions())


def with_memory(inputs, gib):
    """The same on devices with so much memory."""
    return replace(inputs, devices={kind: with_fields(each, memory_gib=gib) for kind, each in inputs.devices.items()})


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "pp", "length", "rows"), [(4, 4, 2048, 8), (8, 2, 1024, 16), (4, 2, 4096, 32)])
def test_collectives_that_take_longer_than_compute_are_no_longer_in_the_bound_than_in_steps(
    tmp_path, ranks, pp, length, rows
):
    """ZeRO-3 over nodes of one or two ranks: no even layout is simulated below the bound over every division."""
    cluster = small_cluster(tmp_path, "h100-80gb", ranks, per_node=ranks // 4)
    inputs = with_joint_fields(
        static_inputs(tmp_path, "llama-3-8b", cluster, [length] * rows, f"zero: 3, pp: {pp}, cp: 1")
    )
    inputs = replace(inputs, software=read_software("megatron")[0].framework)
    problem = layout_problem(inputs)
    space = layouts_of(problem, fixed_fields(inputs))
    screened, bound = screen(problem, space), least_divided(problem, space, inf).seconds
    assert 0.0 < bound < inf
    for place in np.argsort(screened.seconds)[:6]:
        tried = simulate_layout(inputs, layout_at(problem.trained, screened.layouts, int(place)))
        assert bound <= tried.seconds * (1.0 + 1e-6)


def divisions(layers, parts):
    """Every way to divide layers into so many stages."""
    for cuts in combinations(range(1, layers), parts - 1):
        yield tuple(Layers(range(*ends)) for ends in pairwise((0, *cuts, layers)))


def seconds_of(inputs, fields):
    """The simulated step of a layout; infinite where it does not fit, or cannot be launched."""
    fix = with_fields(inputs.job.fix, layouts={"llm": Parallelism(**fields)})
    try:
        found = predict_job(replace(inputs, job=with_fields(inputs.job, fix=fix)))
    except (Infeasible, InputError, ValueError):
        return float("inf")
    return found.plan.outcome.value if found.fits else float("inf")


def drawn_fields(draw, inputs, pick):
    """A layout of the grid, or a change of the pick, with any division of its layers."""
    fields = {name: draw.choice(values) for name, values in GRID.items()}
    if pick and draw.random() < 0.5:
        changed = draw.sample([*GRID], 2)
        fields = {name: fields[name] if name in changed else getattr(pick, name) for name in GRID}
    fields["vpp"] = fields["vpp"] if fields["pp"] > 1 else 1
    parts, layers = fields["pp"] * fields["vpp"], inputs.spec.layers
    if 1 < parts <= layers:
        fields["stages"] = draw.choice([*divisions(layers, parts)])
    return fields


@pytest.mark.parametrize(
    ("fixed", "more", "gib"),
    [
        ("pp: 2, vpp: 1", "", 80.0),
        ("pp: 2, vpp: 2", "", 80.0),
        ("pp: 2, vpp: 1, recompute: none", EXPERTS, 50.0),
        ("pp: 2, vpp: 2, recompute: none", EXPERTS, 64.0),
    ],
)
@pytest.mark.every(6)
def test_of_all_divisions_of_a_pipeline_none_is_quicker_than_the_plan(tmp_path, fixed, more, gib):
    """Of layers of several kinds as well, where memory is short."""
    chunks = int(fixed[12])
    inputs = few_layers(tmp_path, 6, 2, [8192] * 8, "megatron", fixed=f"{fixed}, zero: 1, micro_batch: 1", more=more)
    inputs = with_memory(inputs, gib)
    plan, kept = parallel_search.plan(inputs, None), {"pp": 2, "vpp": chunks, "zero": 1, "micro_batch": 1}
    kept |= {"recompute": "none"} if more else {}
    each = [seconds_of(inputs, {**kept, "stages": stages}) for stages in divisions(6, 2 * chunks)]
    assert plan.outcome.quickest.value <= min(each) * NEAR < inf and plan.outcome.bound <= min(each)
    assert plan.outcome.bound == pytest.approx(plan_space_seconds(plan), rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.every(6)
def test_no_layout_of_a_small_job_is_quicker_than_the_plan_or_below_its_bound(tmp_path, seed):
    draw = random.Random(seed)
    layers, ranks, length = draw.randrange(3, 9), draw.choice((2, 3, 4)), draw.choice((512, 2048, 8192))
    sizes = [length] * (ranks * draw.choice((1, 2, 4)))
    sizes = sizes if draw.random() < 0.7 else [max(64, size // draw.randrange(1, 9)) for size in sizes]
    inputs = few_layers(tmp_path, layers, ranks, sizes, draw.choice(SOFTWARE))
    inputs = with_memory(inputs, draw.choice((20.0, 30.0, 45.0, 80.0)))
    try:
        plan = parallel_search.plan(inputs, None)
    except Infeasible:
        plan = None
    for _ in range(TRIED):
        fields = drawn_fields(draw, inputs, plan and plan.layouts["llm"])
        seconds = seconds_of(inputs, fields)
        assert plan or seconds == float("inf"), fields
        if plan:
            assert seconds >= plan.outcome.bound * (1 - 1e-9), fields
            assert seconds * NEAR >= plan.outcome.quickest.value or len({*sizes}) > 1, fields


def test_layers_of_a_rank_are_spread_over_its_chunks():
    stages = spread_stages((5, 4, 3), 2)
    assert [len(each) for each in stages] == [3, 2, 2, 2, 2, 1]
    assert [layer for each in stages for layer in each] == [*range(12)]
    middle, last = ([len(each) for each in spread_stages((4,), 3, ahead)] for ahead in (1, 0))
    assert middle == [1, 2, 1] and last == [1, 1, 2]


def test_neighbours_move_one_layer_and_leave_each_rank_enough():
    for layers in ((2, 4, 3, 2), (1, 5), (3, 3), (2, 2)):
        for each in neighbours(layers, 2):
            assert sum(each) == sum(layers) and sum(abs(a - b) for a, b in zip(each, layers, strict=True)) == 2
            assert all(own >= 2 for own, before in zip(each, layers, strict=True) if own < before)
    assert not [*neighbours((2, 2), 2)] and [*neighbours((3, 3), 2)] == [(2, 4), (4, 2)]
    assert with_enough((5, 1), 2) == (4, 2) and with_enough((2, 1), 2) is None


@pytest.mark.slow
def test_layers_before_a_heavy_head_are_elsewhere_where_the_bound_names_no_such_division(tmp_path):
    """A head of 256,000 words: what the bound divides needs recomputation, and this does not."""
    fixed = "replica: 1, micro_batch: 1, tp: 4, cp: 4, pp: 12"
    job = static_job(tmp_path, "nemotron-4-340b", small_cluster(tmp_path, "h100-80gb", 768), [4096] * 2304, fixed, "")
    inputs = load_job(for_software(job, "internevo"), JobOptions())
    layout = parallel_search.plan(inputs, None).layouts["llm"]
    assert [len(stage) for stage in layout.stages][-1] == 7 and layout.recompute == "none"
