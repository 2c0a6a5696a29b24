"""Bytes on a rank: states by ZeRO stage and dtype, what they leave for tokens, what recomputation saves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner.costs.analytic import analytic_costs

from planner.costs.memory.caps import Stage, activation_bytes, memory_cap, state_bytes, token_cap, zero_stages
from planner.plan.model import Layout
from planner.specs import library
from planner.specs.base import Ranks, changed
from planner.specs.job import Limits
from planner.specs.model import Decoder, Model
from planner.specs.parameters import parameters
from planner.specs.profile import Device, Profile
from planner.units import GIB, KIB
from tests.meshes import meshed

MODULE = Decoder(layers=4, hidden=64, heads=8, kv_heads=4, ffn=128, vocab=256)
DEVICE = Device(kind="cuda", memory_gib=10, tflops={"bf16": 100}, memory_gb_per_s=1000, reserved_gib=1)


def spread_over(zero: int, dtype="bf16", **mesh: int) -> Layout:
    size = 1
    for extent in mesh.values():
        size *= extent
    return Layout(ranks=Ranks(range(size)), **meshed(mesh), zero=zero, dtype=dtype)


@pytest.mark.parametrize(("zero", "per_parameter"), [(0, 16), (1, 4 + 12 / 8), (2, 2 + 14 / 8)])
def test_states_of_mixed_precision_adam_by_zero_stage(zero, per_parameter):
    assert state_bytes(MODULE, spread_over(zero, dp=8)) == parameters(MODULE).total * per_parameter


def test_zero_3_shards_all_states_and_gathers_two_layers_the_head_and_its_gradients():
    count, head = parameters(MODULE), MODULE.vocab * MODULE.hidden
    gathered = 2 * (2 * count.layer + head) + (2 + 2) * max(count.layer, head)
    assert state_bytes(MODULE, spread_over(3, dp=8)) == count.total * 16 / 8 + gathered


def test_tensor_and_pipeline_ranks_hold_their_part():
    norms = (2 * MODULE.layers + 1) * MODULE.hidden  # each tensor-parallel rank has them whole
    split = (parameters(MODULE).total - norms) / 2 + norms
    for zero, each in ((0, 16), (1, 4 + 12 / 2)):
        layout = spread_over(zero, dp=2, pp=2, tp=2)
        assert sum(state_bytes(MODULE, layout, stage=stage) for stage in (0, 1)) == split * each
        assert state_bytes(MODULE, layout) == max(state_bytes(MODULE, layout, stage=stage) for stage in (0, 1))


@pytest.mark.parametrize(("dtype", "each"), [("bf16", 16), ("float32", 16), ("float64", 32)])
def test_states_by_dtype(dtype, each):
    assert state_bytes(MODULE, spread_over(0, dtype, dp=1)) == parameters(MODULE).total * each


@given(st.sampled_from([0, 1, 2, 3]), st.integers(1, 64))
def test_more_ranks_and_more_sharding_never_hold_more(zero, ranks):
    held = state_bytes(MODULE, spread_over(zero, dp=ranks))
    assert state_bytes(MODULE, spread_over(zero, dp=2 * ranks)) <= held
    if zero < 2:
        assert state_bytes(MODULE, spread_over(zero + 1, dp=ranks)) <= held


def test_tokens_fill_what_states_leave():
    costs, layout, limits = analytic_costs(MODULE, DEVICE, "bf16", "none"), spread_over(3, dp=8), Limits()
    cap = token_cap(MODULE, costs, layout, DEVICE, limits)
    assert memory_cap(DEVICE, limits) == (10 * 0.94 - 1) * GIB
    for tokens, fits in ((cap, True), (cap + 1, False)):
        held = state_bytes(MODULE, layout) + activation_bytes(costs, MODULE.layers, True, tokens)
        assert (held <= memory_cap(DEVICE, limits)) == fits
    assert token_cap(MODULE, costs, layout, DEVICE, Limits(tokens_per_rank=77)) == 77


def test_recompute_trades_memory_for_time():
    kept = [analytic_costs(MODULE, DEVICE, "bf16", how).layer for how in ("none", "selective", "full")]
    each = [passes.activation_kib_per_token for passes in kept]
    assert each[0] > each[1] > each[2] == MODULE.hidden * 2 / KIB
    again = kept[0].forward.ms_per_token
    assert kept[2].backward.ms_per_token == pytest.approx(kept[0].backward.ms_per_token + again)
    assert kept[0].backward.ms_per_token < kept[1].backward.ms_per_token < kept[2].backward.ms_per_token


def test_each_stage_has_its_sync_and_the_cap_it_leaves():
    costs, layout = analytic_costs(MODULE, DEVICE, "bf16", "none"), spread_over(3, dp=8)
    stages = zero_stages(MODULE, costs, layout, DEVICE, Limits())
    assert [(stage.zero, stage.sync) for stage in stages] == [*((z, "step") for z in range(3)), (3, "micro_batch")]
    for zero, _, cap in stages:
        assert cap == token_cap(MODULE, costs, spread_over(zero, dp=8), DEVICE, Limits())
    assert zero_stages(MODULE, costs, layout, DEVICE, Limits(tokens_per_rank=7))[1] == Stage(1, "step", 7)


def test_on_40_gb_lower_stages_cost_flexsp_half_of_its_tokens_and_nearly_all():
    """GPT-7B on 64 A100 of which 30 GiB are used: ZeRO-3 leaves FlexSP 6449 tokens a rank when nothing is gathered."""
    profile, _ = library.read("flexsp-a100-40gb", Profile)
    model, _ = library.read("gpt-7b", Model)
    module, costs = model.modules["llm"], profile.modules["gpt-7b/llm"]
    device = changed(profile.device, memory_gib=30.0, reserved_gib=0.0)
    none, one, two, three = zero_stages(module, costs, spread_over(3, dp=64), device, Limits(memory_margin=0.0))
    gathered = 6449 - three.cap
    assert 0 < gathered * costs.layer.activation_kib_per_token * KIB < 4 * GIB
    assert 0.4 < two.cap / 6449 < 0.6
    assert 0 <= one.cap < 0.03 * 6449
    assert none.cap < 0
