"""The closed form of a step: arrays as one by one, bubbles, scaling."""

from dataclasses import replace

import numpy as np
import pytest

from planner.costs.layout_columns import LayoutColumns, stack_columns
from planner.costs.step.stage_seconds import mean_layer_seconds, weight_gradient_share
from planner.costs.step.static_step import static_step_seconds, zero_bubble_share
from planner.specs.base import with_fields
from planner.specs.framework.timing_coefficients import TimingCoefficients
from tests.costs.machines import GPT, LLAMA, MIXTRAL, ideal, shipped
from tests.plan.schedules.made import ordered_plan, timeline


def replace_vocab(module, vocab):
    return with_fields(module, vocab=vocab)


def replace_layers(module, layers):
    return with_fields(module, layers=layers)


FULL = TimingCoefficients(
    passes=1.2, tp_exposed=0.7, dp_window=0.6, layer_us=150.0, tp_us=100.0, expert_us=2000.0, micro_batch_ms=0.2,
    step_ms=25.0, jitter=0.003, shard_ms=0.1, imbalance=0.5,
)  # fmt: skip
MANY = [
    LayoutColumns(
        ranks=ranks,
        seq=4096,
        batch=512,
        micro_batch=mb,
        tp=tp,
        pp=pp,
        vpp=vpp,
        cp=cp,
        ep=ep,
        zero=zero,
        full_recompute=full,
    )
    for ranks, tp, pp, vpp, cp, ep, mb, zero, full in (
        (64, 1, 1, 1, 1, 1, 1, 1, 0.0),
        (64, 8, 1, 1, 1, 2, 2, 1, 1.0),
        (64, 4, 4, 1, 1, 4, 1, 1, 0.5),
        (128, 4, 4, 2, 2, 8, 1, 0, 0.0),
        (128, 2, 8, 4, 1, 8, 2, 1, 0.0),
        (512, 8, 2, 1, 4, 8, 1, 3, 0.0),
        (64, 2, 6, 1, 1, 1, 1, 2, 0.0),
    )
]


@pytest.mark.parametrize("module", [GPT, LLAMA, MIXTRAL])
def test_arrays_price_as_setups_one_by_one(module):
    machine = replace(shipped(), timing=FULL)
    together = static_step_seconds(module, stack_columns(MANY), machine)
    for place, setup in enumerate(MANY):
        alone = static_step_seconds(module, setup, machine)
        for name in ("compute", "tp", "cp", "ep", "pp", "bubble", "dp", "update", "overhead", "seconds"):
            there = np.broadcast_to(getattr(together, name), len(MANY))[place]
            assert float(there) == pytest.approx(float(getattr(alone, name)), rel=1e-12), name


@pytest.mark.parametrize("setup", MANY, ids=range(len(MANY)))
def test_parts_add_up_and_none_is_negative(setup):
    found = static_step_seconds(MIXTRAL, setup, replace(shipped(), timing=FULL))
    parts = [float(getattr(found, name)) for name in found.__slots__]
    assert float(found.seconds) == pytest.approx(sum(parts)) and min(parts) >= -1e-12


@pytest.mark.parametrize(("pp", "vpp"), [(2, 1), (4, 1), (4, 2), (8, 2)])
def test_the_bubble_of_equal_stages(pp, vpp):
    """(p − 1)/(v·m) of the work (arXiv 2104.04473, section 2.2), but for the head, which only the last stage has."""
    module = replace_vocab(GPT, 1)
    setup = LayoutColumns(ranks=pp, seq=2048, batch=32, pp=pp, vpp=vpp)
    found = static_step_seconds(module, setup, ideal(TimingCoefficients(pp_exposed=0.0, gradient_bytes=1e-6)))
    assert float(found.bubble / found.compute) == pytest.approx((pp - 1) / (vpp * 32), rel=1e-3)


def test_zero_bubble_leaves_a_third_where_the_three_take_the_same_time():
    at = LayoutColumns(ranks=8, seq=2048, batch=32, pp=8)
    assert float(zero_bubble_share(at, 1 / 3)) == pytest.approx(1 / 3)
    assert float(zero_bubble_share(replace(at, batch=1), 1 / 3)) == pytest.approx(2 / 3)  # nothing can be put off


@pytest.mark.parametrize("module", [GPT, replace_layers(LLAMA, 64)])
@pytest.mark.parametrize("batch", [1, 4, 7, 8, 20])
def test_zero_bubble_leaves_what_its_order_does(module, batch):
    """As the generator's order takes with F, I and W of a layer: (p − 1)(F + I) less W for each that is put off."""
    setup, machine = LayoutColumns(ranks=8, seq=2048, batch=batch, pp=8), shipped()
    plain, none = (static_step_seconds(module, replace(setup, schedule=each), machine) for each in ("1f1b", "zb_h1"))
    each = mean_layer_seconds(module, setup, machine)
    forward, backward = float(each.forward.seconds), float(each.backward.seconds)
    weights = float(weight_gradient_share(module, setup, machine)) * (forward + backward)
    passes = {"F": forward, "I": backward - weights, "W": weights}
    whole = forward + backward
    played = timeline(ordered_plan(8, batch, "zb_h1"), **passes).step_seconds - whole * batch
    assert float(none.bubble / plain.bubble) == pytest.approx(played / (whole * 7), abs=0.03)


def test_ideal_ranks_take_the_flops_over_the_peak():
    from planner.published.measured_figures import step_flops

    setup = LayoutColumns(ranks=1, seq=2048, batch=4)
    timing = TimingCoefficients(gradient_bytes=1e-6)
    found = float(static_step_seconds(LLAMA, setup, ideal(timing)).compute)
    causal = step_flops(LLAMA, setup, "causal", False)
    assert causal / 1e14 < found < causal / 1e14 * 1.05  # backward of flash attention makes its scores again
