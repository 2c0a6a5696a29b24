"""Layers divided over pipelines: no division of any layout is below the bound, nor quicker than the pick."""

import random
from dataclasses import replace
from itertools import combinations, pairwise
from math import inf

import numpy as np
import pytest

from planner.errors import Infeasible, InputError
from planner.layouts import fixed_fields, layout_problem, layouts_of, screen, with_fixed_fields
from planner.layouts.divided_layouts import spread_stages
from planner.layouts.layout_space import layout_at
from planner.layouts.split_bound import least_divided
from planner.scoring import plan_space_seconds
from planner.specs.base import Layers, with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.named_files import read_software
from planner.specs.parallelism import Parallelism
from planner.strategies import parallel_search
from planner.strategies.static.simulated_layouts import simulate_layout
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
     norm: rms, bias: none, positions: rope, tied: false}}
"""
NEAR = 1.005  # of the quickest by brute force
TRIED = share(60)  # layouts of a job
SOFTWARE = ("megatron", "any", "torchtitan", "nemo")
GRID = {
    "tp": (1, 2, 4), "cp": (1, 1, 2, 4), "pp": (1, 2, 3, 4), "vpp": (1, 2), "zero": (0, 1, 2, 3),
    "micro_batch": (1, 2, 3, 4), "recompute": ("none", "selective", "full", ("mlp",), {0: "full"}),
    "overlap": ((), ("tp",)), "offload": (0.0, 0.05, 0.2), "optimizer_offload": (0.0, 0.5),
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def few_layers(folder, layers, ranks, sizes, software, fixed=""):
    """A job of a model with few layers."""
    (folder / "model.yaml").write_text(MODEL.format(layers=layers))
    cluster = small_cluster(folder, "h100-80gb", ranks)
    return load_job(for_software(static_job(folder, "./model.yaml", cluster, sizes, fixed, ""), software), JobOptions())


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
    inputs = with_fixed_fields(
        static_inputs(tmp_path, "llama-3-8b", cluster, [length] * rows, f"zero: 3, pp: {pp}, cp: 1")
    )
    inputs = replace(inputs, software=read_software("megatron")[0].framework)
    problem = layout_problem(inputs)
    space = layouts_of(problem, fixed_fields(inputs))
    screened, bound = screen(problem, space), least_divided(problem, space, inf).seconds
    assert 0.0 < bound < inf
    for place in np.argsort(screened.seconds)[:6]:
        tried = simulate_layout(inputs, problem, layout_at(problem.trained, screened.layouts, int(place)))
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


@pytest.mark.parametrize("fixed", ["pp: 2, vpp: 1", "pp: 2, vpp: 2"])
def test_of_all_divisions_of_a_pipeline_none_is_quicker_than_the_plan(tmp_path, fixed):
    chunks = int(fixed[-1])
    inputs = few_layers(tmp_path, 6, 2, [8192] * 8, "megatron", fixed=f"{fixed}, zero: 1, micro_batch: 1")
    plan, kept = parallel_search.plan(inputs, None), {"pp": 2, "vpp": chunks, "zero": 1, "micro_batch": 1}
    each = [seconds_of(inputs, {**kept, "stages": stages}) for stages in divisions(6, 2 * chunks)]
    assert plan.outcome.quickest.value <= min(each) * NEAR and plan.outcome.bound <= min(each)
    assert plan.outcome.bound == pytest.approx(plan_space_seconds(plan), rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.every(3)
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
