"""Bytes on a rank: states by ZeRO stage and dtype, the tokens that they leave room for, what recomputation saves."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.compute.assumed_rates import ASSUMED_RATES
from planner.costs.layout_columns import PipelineBatch, columns_of
from planner.costs.memory.allowed_memory import allowed_bytes, device_accounting, oom_chance
from planner.costs.memory.footprint import footprint
from planner.costs.memory.token_caps import ActivationBytes, BytesOf, activation_bytes_left, idle_footprint, token_cap
from planner.costs.pricing import Pricing
from planner.plan.plan_file import Layout, Prices
from planner.specs import library
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.framework.memory_coefficients import PLANNER_RUNTIME_MEMORY, MemoryCoefficients
from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.specs.hardware.profile import Device, Profile
from planner.specs.job import Limits
from planner.specs.layers import Decoder
from planner.specs.model import Model
from planner.specs.parameters import parameter_counts
from planner.specs.sequence_sharding import SequenceSplit
from planner.units import GIB, KIB
from tests.meshes import meshed

MODULE = Decoder(layers=4, hidden=64, heads=8, kv_heads=4, ffn=128, vocab=256)
DEVICE = Device(kind="cuda", memory_gib=10, tflops={"bf16": 100}, memory_gb_per_s=1000, reserved_gib=1)
EVERYTHING = Limits(memory_margin=0.0, oom_chance=1.0)


def spread_over(zero: int, dtype="bf16", **mesh: int) -> Layout:
    return Layout(ranks=Ranks(range(prod(mesh.values()))), **meshed(mesh), zero=zero, dtype=dtype)


def state_bytes(layout: Layout, stage: int = 0, accounting: MemoryCoefficients = PLANNER_RUNTIME_MEMORY) -> float:
    """With what is gathered."""
    found = idle_footprint(MODULE, layout, DEVICE, accounting, stage)
    return float(found.states + found.gathered)


def of_token(
    layout: Layout, module: Decoder = MODULE, accounting: MemoryCoefficients = PLANNER_RUNTIME_MEMORY, seq: int = 1
) -> ActivationBytes:
    return ActivationBytes(*(each / seq for each in of_tokens(layout, module, accounting)(seq)))


def of_tokens(
    layout: Layout, module: Decoder = MODULE, accounting: MemoryCoefficients = PLANNER_RUNTIME_MEMORY
) -> BytesOf:
    size = len(layout.ranks)
    cluster = Cluster(
        format=Cluster.FORMAT,
        name="one node",
        source="made up",
        ranks=(RankKind(kind="gpu", count=size, per_node=size),),
        levels=(Level(name="node", ranks=size, gb_per_s=10.0, latency_us=1.0),),
    )
    prices = Prices(profile="made up", rates={"gpu": ASSUMED_RATES}, accounting=accounting)
    basis = Pricing({"llm": module}, {"llm": layout}, cluster, prices, {"gpu": DEVICE}).module_pricing("llm", "gpu")
    return lambda tokens: basis.activation_bytes(Layers(range(module.layers)), True, SequenceSplit(), (tokens,))


@pytest.mark.parametrize(("zero", "per_parameter"), [(0, 18), (1, 4 + 2 + 12 / 8), (2, 2 + 4 + 12 / 8)])
def test_states_of_fsdp2_by_zero_stage(zero, per_parameter):
    """Weights gathered in bf16; float32 gradients stay whole on each rank until the step's end; the rest is shards."""
    assert state_bytes(spread_over(zero, dp=8)) == pytest.approx(parameter_counts(MODULE).total * per_parameter)


@pytest.mark.parametrize(("zero", "per_parameter"), [(0, 18), (1, 6 + 12 / 8), (2, 2 + 16 / 8), (3, 18 / 8)])
def test_states_of_mixed_precision_adam_by_zero_stage(zero, per_parameter):
    found = idle_footprint(MODULE, spread_over(zero, dp=8), DEVICE, MemoryCoefficients(), 0).states
    assert float(found) == pytest.approx(parameter_counts(MODULE).total * per_parameter)


def test_zero_3_shards_all_states_and_gathers_two_layers_the_head_and_its_gradients():
    count, head = parameter_counts(MODULE), MODULE.vocab * MODULE.hidden
    gathered = 2 * (2 * count.largest_layer + head) + (2 + 4) * max(count.largest_layer, head)
    assert state_bytes(spread_over(3, dp=8)) == pytest.approx(count.total * 16 / 8 + gathered)


@pytest.mark.parametrize(("dtype", "each"), [("bf16", 18), ("float32", 16), ("float64", 32)])
def test_states_by_dtype(dtype, each):
    assert state_bytes(spread_over(0, dtype, dp=1)) == parameter_counts(MODULE).total * each


@given(st.sampled_from([0, 1, 2, 3]), st.integers(1, 64))
def test_more_ranks_and_more_sharding_never_hold_more(zero, ranks):
    held = state_bytes(spread_over(zero, dp=ranks))
    assert state_bytes(spread_over(zero, dp=2 * ranks)) <= held
    if zero < 2:
        assert state_bytes(spread_over(zero + 1, dp=ranks)) <= held


# -------------------------------------------------------------------------------------------- what may be held


def test_what_is_allowed_leaves_the_margin_and_runs_out_no_more_often_than_the_job_allows():
    whole = 10 * GIB
    assert allowed_bytes(DEVICE, EVERYTHING, PLANNER_RUNTIME_MEMORY) == whole
    assert allowed_bytes(DEVICE, with_fields(EVERYTHING, memory_margin=0.25), PLANNER_RUNTIME_MEMORY) == 0.75 * whole
    for chance in (0.01, 0.2, 0.5):
        sure = allowed_bytes(DEVICE, with_fields(EVERYTHING, oom_chance=chance), PLANNER_RUNTIME_MEMORY)
        assert float(oom_chance(sure, whole, PLANNER_RUNTIME_MEMORY.spread)) == pytest.approx(chance, abs=1e-6)
        both = allowed_bytes(DEVICE, Limits(memory_margin=0.1, oom_chance=chance), PLANNER_RUNTIME_MEMORY)
        assert both == min(sure, 0.9 * whole)


@given(st.floats(0, 0.9), st.floats(0, 0.9), st.floats(1e-4, 0.999), st.floats(1e-4, 0.999))
def test_more_margin_and_less_chance_never_allow_more(margin, other, chance, another):
    least = allowed_bytes(
        DEVICE, Limits(memory_margin=max(margin, other), oom_chance=min(chance, another)), PLANNER_RUNTIME_MEMORY
    )
    assert (
        least
        <= allowed_bytes(DEVICE, Limits(memory_margin=margin, oom_chance=chance), PLANNER_RUNTIME_MEMORY)
        <= 10 * GIB
    )


def test_a_cpu_has_no_workspaces_and_a_device_says_its_own_context():
    megatron = MemoryCoefficients(context_gib=1.5)
    cpu = device_accounting(with_fields(DEVICE, kind="cpu", reserved_gib=0.0), megatron)
    assert (cpu.context_gib, cpu.workspace_gib, cpu.buffers, cpu.fragmentation) == (0, 0, 0, 0)
    assert device_accounting(DEVICE, megatron) == with_fields(megatron, context_gib=1.0)
    assert device_accounting(with_fields(DEVICE, reserved_gib=0.0), megatron) == megatron


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("mesh", [{"dp": 8}, {"dp": 2, "tp": 4}, {"dp": 1}])
@pytest.mark.parametrize("zero", [1, 3])
def test_tokens_fill_what_states_leave(zero, mesh, recompute):
    """To the token: the footprint of a rank with as many fits, and with one more does not."""
    layout, limits = with_fields(spread_over(zero, **mesh), recompute=recompute), Limits()
    cap = token_cap(MODULE, of_tokens(layout), layout, DEVICE, limits, PLANNER_RUNTIME_MEMORY)
    most = allowed_bytes(DEVICE, limits, PLANNER_RUNTIME_MEMORY)
    for tokens, fits in ((cap, True), (cap + 1, False)):
        at = columns_of(layout, PipelineBatch(seq=float(tokens), batch=float(layout.dp)))
        held = float(footprint(MODULE, at, device_accounting(DEVICE, PLANNER_RUNTIME_MEMORY), 0).total)
        assert (held <= most) == fits
        assert held == pytest.approx(most, rel=1e-4)
    assert (
        token_cap(MODULE, of_tokens(layout), layout, DEVICE, Limits(tokens_per_rank=77), PLANNER_RUNTIME_MEMORY) == 77
    )


def test_where_states_do_not_fit_there_is_no_room():
    layout, small = spread_over(0, dp=8), with_fields(DEVICE, memory_gib=1.05)
    assert activation_bytes_left(MODULE, layout, small, Limits(), PLANNER_RUNTIME_MEMORY) < 0
    assert token_cap(MODULE, of_tokens(layout), layout, small, Limits(), PLANNER_RUNTIME_MEMORY) < 0
    assert activation_bytes_left(MODULE, layout, DEVICE, Limits(), PLANNER_RUNTIME_MEMORY) > 0


def test_attention_whose_matrix_exists_holds_less_of_longer_sequences():
    """A token of a sequence keeps a row as long as this."""
    layout, matrix = spread_over(1, dp=1), with_fields(PLANNER_RUNTIME_MEMORY, flash=False)
    short, long = (of_token(layout, accounting=matrix, seq=seq).layers for seq in (100, 1100))
    assert long - short == MODULE.layers * MODULE.heads * 1000 * 2
    assert of_token(layout, seq=100) == of_token(layout, seq=1100)


def test_on_40_gb_lower_stages_cost_flexsp_half_of_its_tokens_and_nearly_all():
    """GPT-7B on 64 A100 of which 30 GiB are used: ZeRO-3 leaves FlexSP 6449 tokens a rank when nothing is gathered."""
    profile, _ = library.read_named("flexsp-a100-40gb", Profile)
    model, _ = library.read_named("gpt-7b", Model)
    module, costs = model.modules["llm"], profile.modules["gpt-7b/llm"]
    device = with_fields(profile.device, memory_gib=30.0, reserved_gib=1e-9)
    # its framework: gradients in bf16, sharded as they come; nothing beside what tensors hold
    plain = MemoryCoefficients(gradient_bytes=2.0, workspace_gib=0.0, buffers=0.0, fragmentation=0.0)
    per_token = costs.layer.activation_kib_per_token * KIB * module.layers / costs.layer.layers
    held = ActivationBytes(per_token, 0.0, 0.0)
    none, one, two, three = (
        token_cap(module, held.times, spread_over(zero, dp=64), device, EVERYTHING, plain) for zero in range(4)
    )
    gathered = 6449 - three
    assert 0 < gathered * per_token < 4 * GIB
    assert 0.4 < two / 6449 < 0.6
    assert one < 0.03 * 6449
    assert none < 0
