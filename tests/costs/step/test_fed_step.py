"""A step of an LLM that encoders feed: passes cost what they cost in plans, and wait by where they are."""

from dataclasses import replace

import pytest

from planner.costs import LayoutColumns
from planner.costs.step.static_step import FeedingEncoder, encoder_passes, fed_step_seconds, static_step_seconds
from planner.plan.gradient_flow import TRAINED, GradientFlow
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.layers import Vit
from planner.strategies.modality.level_stages import PASSES, batch_pricing, pass_of
from tests.costs.machines import LLAMA, ideal, shipped

VIT = Vit(layers=24, hidden=1024, heads=16, ffn=4096, patch=14, merge=2, out=4096)
FROZEN = GradientFlow(trains_layers=False, trains_projector=False, passes_on=False)


def reader(pp: int, micro_batches: int) -> LayoutColumns:
    return LayoutColumns(ranks=8.0, seq=4096.0, batch=8.0 / pp * micro_batches, pp=pp, zero=1)


def encoder(at: LayoutColumns, patches: float, **more: object) -> FeedingEncoder:
    own = replace(at, ranks=at.ranks / at.pp, pp=1, seq=patches, alike={})
    return FeedingEncoder(VIT, own, TRAINED, **more)


def added(pp: int, patches: float, apart: bool, micro_batches: int = 8) -> tuple[float, float]:
    """Seconds that an encoder adds to a step, but for its exchange and update; and those of its passes."""
    at, machine = reader(pp, micro_batches), ideal()
    fed = encoder(at, patches, apart=apart)
    own = static_step_seconds(VIT, fed.at, machine)
    alone = static_step_seconds(LLAMA, at, machine).seconds
    more = fed_step_seconds(LLAMA, at, [fed], machine) - alone - own.dp - own.update
    return float(more), float(encoder_passes(fed, machine).seconds)


def test_nothing_read_adds_nothing():
    at, machine = reader(2, 8), shipped(micro_batch_ms=0.3, step_ms=20.0, jitter=0.01)
    assert fed_step_seconds(LLAMA, at, [], machine) == static_step_seconds(LLAMA, at, machine).seconds


@pytest.mark.parametrize("patches", [256.0, 1024.0, 16384.0])
def test_without_a_pipeline_every_micro_batch_waits(patches):
    more, passes = added(1, patches, apart=False)
    assert more == pytest.approx(8 * passes, rel=1e-9)


@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize("patches", [256.0, 4096.0, 65536.0])
def test_a_pipeline_waits_for_one_at_least_and_for_all_at_most(pp, patches):
    """An encoder apart is a stage of its own: it delays no more than on the first stage."""
    first, passes = added(pp, patches, apart=False)
    apart, _ = added(pp, patches, apart=True)
    assert passes * (1 - 1e-9) <= apart <= first * (1 + 1e-9) <= 8 * passes * (1 + 2e-9)


def test_an_encoder_that_is_slower_than_every_stage_sets_the_pace():
    more = [added(2, 2.0**18, apart=True, micro_batches=count) for count in (8, 9)]
    stage = (
        static_step_seconds(LLAMA, reader(2, 9), ideal()).seconds
        - static_step_seconds(LLAMA, reader(2, 8), ideal()).seconds
    )
    assert more[1][0] - more[0][0] == pytest.approx(more[0][1] - stage, rel=1e-6)


def test_what_is_frozen_and_reads_nothing_trained_has_no_backward():
    at = reader(1, 8)
    own = replace(encoder(at, 1024.0), module=with_fields(VIT, trained="none"), flow=FROZEN)
    assert encoder_passes(own, ideal()).backward.seconds == 0.0


def test_passes_cost_what_they_cost_in_plans(tmp_path):
    """One image in a micro-batch, on two ranks."""
    (tmp_path / "samples.csv").write_text("text,images\n" + "600,1280x960\n" * 16)
    job = tmp_path / "job.yaml"
    job.write_text(
        "format: planner.job/1\nname: fed\nmodel: qwen2.5-vl-7b\ncluster: h100x16\nsoftware: nemo\n"
        "workload: {lengths: {from: samples, path: samples.csv}, batch_rows: 16, module: llm}\n"
    )
    inputs = load_job(str(job), JobOptions())
    layouts = {
        "llm": Layout(ranks=Ranks(range(16)), tp=2, pp=2, dp=4, zero=1),
        "vision": Layout(ranks=Ranks(range(8)), tp=2, dp=4, zero=1),
    }
    pricing = batch_pricing(inputs, layouts)
    vision, layout = inputs.model.modules["vision"], layouts["vision"]
    ranks = Ranks(stage_ranks(layout, 0)[:2])
    size = next(iter(inputs.batches[0].streams["vision"].values()))
    planned = sum(
        pricing.price(pass_of("vision", Layers(range(vision.layers)), phase, ranks, (size,), layout)).value
        for phase in PASSES
    )
    machine, at = pricing.machine("h100-80gb"), LayoutColumns(ranks=8.0, seq=6256.0, batch=4.0, tp=2.0, zero=1)
    passes = encoder_passes(FeedingEncoder(vision, at, TRAINED), machine).seconds
    assert planned == pytest.approx(passes * (1.0 + machine.jitter(8.0)), rel=1e-3)
