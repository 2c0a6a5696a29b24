"""Kernels at their rates, and the host that launches them."""

import pytest

from planner.costs.compute.layer_work import Matmul, layer_work
from planner.costs.layout_columns import LayoutColumns
from planner.costs.machine_model import UNALIGNED_WORK
from planner.specs.base import with_fields
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.layers.trained import Lora
from planner.units import US
from tests.costs.machines import GPT, LLAMA, MIXTRAL, PEAK, ideal, shipped


def test_a_product_takes_its_flops_over_the_peak():
    assert float(ideal().matmul(Matmul(1024, 2048, 4096), "bf16")) == pytest.approx(
        2 * 1024 * 2048 * 4096 / PEAK / 1e12
    )


def test_backward_does_both_products_and_attention_two_and_a_half_times():
    machine = ideal(TimingCoefficients(gradient_bytes=1e-6))
    work = layer_work(GPT, "dense", LayoutColumns(ranks=1, seq=2048, batch=1))
    products = sum(float(p.flops) for p in work.matmuls) / PEAK / 1e12
    attention = work.attention.flops / PEAK / 1e12
    assert float(machine.forward(work, "bf16")) == pytest.approx(products, rel=1e-4)
    assert float(machine.backward(work, "bf16")) == pytest.approx(2 * products, rel=1e-4)
    assert float(machine.attention_seconds(work.attention, True)) == pytest.approx(attention)
    assert float(machine.attention_seconds(work.attention, False)) == pytest.approx(2.5 * attention)


def test_gradients_of_weights_are_half_of_the_products_and_nothing_of_attention():
    """So W is what a backward saves where no weights are trained."""
    machine = ideal(TimingCoefficients(gradient_bytes=1e-6))
    work = layer_work(GPT, "dense", LayoutColumns(ranks=1, seq=2048, batch=1))
    frozen = layer_work(with_fields(GPT, trained="none"), "dense", LayoutColumns(ranks=1, seq=2048, batch=1))
    both, inputs = (float(machine.backward(each, "bf16")) for each in (work, frozen))
    assert float(machine.weight_gradient_seconds(work, "bf16")) == pytest.approx(both - inputs)
    assert float(machine.weight_gradient_seconds(work, "bf16")) == pytest.approx(both / 2, rel=1e-4)


def test_a_matrix_of_scores_is_moved_whole_by_what_its_kernels_do():
    machine = ideal(TimingCoefficients(score_bytes=12.0))
    core = layer_work(GPT, "dense", LayoutColumns(ranks=1, seq=2048, batch=1)).attention
    for forward, moved in ((True, 12.0), (False, 17.0)):
        more = float(machine.attention_seconds(core, forward) - machine.attention(core, forward))
        assert more == pytest.approx(moved * 2.0 * core.pairs * core.heads / machine.bandwidth)


def test_heads_of_widths_that_no_kernel_has_are_padded_and_rows_that_are_not_aligned_leave_tensor_cores():
    def seconds(width, machine):
        model = with_fields(GPT, hidden=16 * width)
        core = layer_work(model, "dense", LayoutColumns(ranks=1, seq=2048, batch=1)).attention
        return float(machine.attention_seconds(core, True)) / width

    fused, stored = ideal(), ideal(TimingCoefficients(score_bytes=1e-9))
    assert seconds(80, fused) == pytest.approx(seconds(96, fused) * 96 / 80) == pytest.approx(1.2 * seconds(64, fused))
    assert seconds(80, stored) == pytest.approx(seconds(64, stored), rel=1e-6)
    assert seconds(145, stored) == pytest.approx(UNALIGNED_WORK * seconds(64, stored), rel=1e-6)


def test_casts_to_fp8_are_shared_by_ranks_that_gather_after_them():
    """All of a layer's products but the two that gather nothing cost less for it, and only in fp8."""
    at = LayoutColumns(ranks=8, tp=8, seq=8192, batch=1, sequence_parallel=True)
    before, after = shipped(), shipped(gathers_fp8=False)
    for place, product in enumerate(layer_work(LLAMA, "dense", at).matmuls):
        own, all_tokens = (float(machine.matmul(product, "fp8")) for machine in (before, after))
        assert own < all_tokens if place in (0, 2) else own == all_tokens
        assert float(before.matmul(product, "bf16")) == float(after.matmul(product, "bf16"))


def test_adapters_spare_the_weights_gradients_and_move_more_bytes():
    at, machine = LayoutColumns(ranks=1, seq=2048, batch=1), shipped()
    none, low, high, whole = (
        layer_work(with_fields(LLAMA, trained=what), "dense", at)
        for what in ("none", Lora(rank=8), Lora(rank=64), "all")
    )
    forwards = [float(machine.forward(work, "bf16")) for work in (whole, none, low, high)]
    assert forwards[0] == forwards[1] < forwards[2] < forwards[3]
    backwards = [float(machine.backward(work, "bf16")) for work in (none, low, high, whole)]
    assert backwards == sorted(backwards)
    assert float(machine.weight_gradient_seconds(none, "bf16")) == 0.0


def test_fp8_is_faster_than_bf16_and_casts_cost():
    product = Matmul(8192, 8192, 8192)
    fast, slow = (float(shipped(cast=cast).matmul(product, "fp8")) for cast in (0.0, 1.0))
    assert fast < slow < float(shipped().matmul(product, "bf16"))


def test_nvfp4_takes_what_fp8_does_on_peaks_that_are_as_much_higher_and_as_long_for_casts():
    machine, product = shipped("b200", cast=1.0), Matmul(8192, 8192, 8192)
    ratio = machine.peak("fp4") / machine.peak("fp8")
    uncast = [float(shipped("b200", cast=0.0).matmul(product, dtype)) for dtype in ("fp8", "fp4")]
    casts = [float(machine.matmul(product, dtype)) - alone for dtype, alone in zip(("fp8", "fp4"), uncast, strict=True)]
    launch = machine.rates.gemm["fp8"].launch_us * US
    assert ratio == 2.0 and casts[1] == pytest.approx(casts[0])
    assert uncast[1] - launch == pytest.approx((uncast[0] - launch) / ratio)


def test_the_host_launches_experts_and_exchanges_besides():
    machine = ideal(TimingCoefficients(layer_us=100.0, tp_us=20.0, expert_us=3.0, each_expert_us=0.5))
    dense = layer_work(MIXTRAL, "dense", LayoutColumns(ranks=1, seq=2048, batch=1))
    moe, shared = (layer_work(MIXTRAL, "moe", LayoutColumns(ranks=8, seq=2048, batch=8, ep=ep)) for ep in (1, 8))
    assert [
        float(machine.host_seconds(w, tp, "bf16"))
        for w, tp in ((dense, 1), (dense, 2), (moe, 1), (moe, 8), (shared, 1))
    ] == pytest.approx([100e-6, 120e-6, 107e-6, 127e-6, 103.5e-6])


@pytest.mark.parametrize("name", ["a100-80gb", "h100-80gb", "b200", "v100-32gb", "mi300x"])
def test_no_product_is_faster_than_its_device(name):
    machine = shipped(name)
    product = Matmul(16384, 16384, 16384)
    assert float(product.flops) / float(machine.matmul(product, "bf16")) < machine.peak("bf16") * 1.05


def test_experts_at_once_need_no_host_no_casts_and_no_pass_over_their_activation():
    host = {"expert_us": 500.0, "each_expert_us": 9.0}
    fused, apart = (shipped("b200", experts_at_once=each, **host) for each in (True, False))
    work = layer_work(MIXTRAL, "moe", LayoutColumns(ranks=8, seq=2048, batch=8, ep=8))
    expert = next(product for product in work.matmuls if product.grouped)
    for machine, dtype in (
        (fused, "bf16"),
        (shipped(experts_at_once=True, **host), "fp8"),
    ):
        assert float(machine.host_seconds(work, 1, dtype)) == pytest.approx(509e-6)  # no kernel for these
    assert float(fused.host_seconds(work, 1, "fp8")) == 0.0
    assert float(fused.matmul(expert, "fp8")) < float(apart.matmul(expert, "fp8"))
    ends = 3 * 2 * float(expert.m) * 14336  # gate and up are read and their product written, in half precision
    saved = float(apart.memory_seconds(work, "fp8") - fused.memory_seconds(work, "fp8"))
    assert saved * fused.bandwidth == pytest.approx(ends)
    assert float(fused.memory_seconds(work, "bf16")) == float(apart.memory_seconds(work, "bf16"))


def test_replicas_that_do_not_overlap_hide_in_no_compute():
    assert shipped(dp_window=0.5).dp_window == 0.5
    assert shipped(dp_window=0.5, overlaps_replicas=False).dp_window == 0.0


def test_weights_that_are_gathered_before_the_next_forward_hide_in_nothing():
    late, ahead = shipped(dp_window=0.5, gathers_ahead=False), shipped(dp_window=0.5)
    for machine, window in ((late, 0.0), (ahead, 0.5)):
        assert machine.replica_window(gathers=True, once=True) == window
    for gathers, once in ((True, False), (False, True), (False, False)):  # ZeRO-3's gathers, and all reductions
        assert late.replica_window(gathers, once) == ahead.replica_window(gathers, once) == 0.5
    assert shipped(overlaps_replicas=False).replica_window(gathers=True, once=True) == 0.0


def test_a_backward_that_gathers_nothing_ahead_hides_nothing_of_zero_3():
    late = shipped(dp_window=0.5, prefetches=False)
    assert (late.dp_window, late.backward_window, shipped(dp_window=0.5).backward_window) == (0.5, 0.0, 0.5)
