"""Lines over sequences, sums of costs, and what a plan must carry to be priced."""

import pytest

from planner.costs.analytic import analytic_costs
from planner.costs.cost import Cost, trust
from planner.costs.compute.lines import Line, compute_line, pass_fit, summed
from planner.costs.pricing import Pricing, pricing_of
from planner.errors import InputError
from planner.plan.expand import expand
from planner.specs.base import changed
from planner.specs.model import Decoder
from planner.specs.profile import Device, Fit, Passes
from tests.plans import sharded_plan

MODULE = Decoder(layers=4, hidden=64, heads=8, kv_heads=4, ffn=128, vocab=256)
DEVICE = Device(kind="cuda", memory_gib=10, tflops={"bf16": 100}, memory_gb_per_s=1000, reserved_gib=1)


def test_a_sum_is_as_trustworthy_as_its_worst_part():
    assert trust(["measured", "published", "fitted"]) == "published"
    total = summed(Cost(3.0, "measured", 0.1, 1.0), Cost(1.0, "analytic", 0.5), Cost(0.0, "published", 9.0))
    assert total == Cost(4.0, "analytic", pytest.approx((3 * 0.1 + 1 * 0.5) / 4), 1.0)


def test_published_passes_are_shared_out_and_add_up():
    both = Passes(both=Fit(ms_per_token2=3.0, ms_per_token=6.0, ms=9.0), forward_share=0.25)
    forward, backward = pass_fit(both, True), pass_fit(both, False)
    assert (forward.ms, backward.ms) == (2.25, 6.75)
    assert forward.ms_per_token2 + backward.ms_per_token2 == 3.0


def test_lines_of_half_the_layers_are_half_the_line():
    costs = analytic_costs(MODULE, DEVICE, "bf16", "none")
    whole, half = (compute_line(costs, layers, False, True, 1) for layers in (4, 2))
    assert whole == half + half
    shared = compute_line(costs, 4, False, True, 4)
    assert shared.const == whole.const > 0  # launches are everybody's
    assert shared.seconds((4, 8)) - shared.const == pytest.approx((whole.seconds((4, 8)) - whole.const) / 4)
    assert compute_line(costs, 4, True, True, 1).lin > whole.lin
    assert Line(1.0, 2.0, 3.0).seconds((2, 1)) == 5.0 + 2.0 * 3 + 3.0


def test_without_prices_there_is_no_pricing():
    plan = sharded_plan(2, [[(0, 2)]])
    with pytest.raises(InputError, match="no prices for `llm`"):
        pricing_of(plan)


def test_gathers_that_the_fits_include_are_free():
    plan = sharded_plan(2, [[(0, 2)]])
    costs = analytic_costs(plan.uses.models["llm"], plan.uses.devices["toy"], "bf16", "none")
    apart, included = (
        Pricing(
            plan.uses.models,
            plan.layouts,
            plan.uses.cluster,
            changed(plan.uses.prices, modules={"llm": changed(costs, sharding=how)}),
        )
        for how in ("apart", "included")
    )
    for task in expand(plan):
        if task.phase in ("gather", "sync"):
            assert apart.price(task).value > 0 == included.price(task).value
        else:
            assert apart.price(task) == included.price(task)
