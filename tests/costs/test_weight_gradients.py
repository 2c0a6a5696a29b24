"""Input gradients (I) and weight gradients (W) add up to a backward; W is the half with weights, and waits for
nobody.
"""

import pytest

from planner.costs.compute.assumed_rates import ASSUMED_RATES
from planner.costs.pricing import pricing_of
from planner.plan.plan_file import Plan, Prices
from planner.plan.task import Task
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, ModuleCosts, PassCosts, PassFit
from tests.plans import sharded_plan, staged_plan

FORWARD, BACKWARD = (PassFit(ms_per_token2=a, ms_per_token=b, ms=c) for a, b, c in ((1e-3, 0.2, 3.0), (2e-3, 0.5, 7.0)))
P2P = CollectiveCosts(source="measured", spread=0.2, points=(CollectivePoint(ranks=2, gb_per_s=1.0, latency_us=5.0),))
ALL = CollectiveCosts(
    source="measured", spread=0.2, points=tuple(CollectivePoint(ranks=n, gb_per_s=1.0) for n in (2, 4))
)


def priced(plan: Plan, **passes) -> Plan:
    layer = PassCosts(**({"layers": 2, "forward": FORWARD, "backward": BACKWARD} | passes))
    ends = PassCosts(forward=FORWARD, backward=BACKWARD)
    costs = ModuleCosts(source="measured", spread=0.1, layer=layer, ends=ends)
    prices = Prices(profile="made up", modules={"llm": costs}, collectives={"p2p": P2P, "all_to_all": ALL})
    return with_fields(plan, uses=with_fields(plan.uses, prices=prices))


def by_rates(plan: Plan) -> Plan:
    timing = TimingCoefficients(layer_us=50.0, micro_batch_ms=0.2)
    prices = Prices(profile="made up", rates={"toy": ASSUMED_RATES}, timing=timing)
    return with_fields(plan, uses=with_fields(plan.uses, prices=prices))


def passes_of(plan: Plan, layers: Layers, ranks: Ranks, degree: int = 1, ring: int = 1) -> dict:
    price = pricing_of(plan).price
    return {
        phase: price(Task("llm", layers, phase, 0, "g", ranks, (5, 8), (0, 1), degree, ring=ring)) for phase in "FBIW"
    }


PLANS = [
    (priced(staged_plan(2, 1)), Layers((0, 1)), Ranks((0,)), 1, 1),
    (priced(staged_plan(2, 1)), Layers((2, 3)), Ranks((1,)), 1, 1),  # with the head
    (priced(sharded_plan(4, [[(0, 4)]])), Layers(range(4)), Ranks(range(4)), 4, 1),
    (priced(sharded_plan(4, [[(0, 4)]])), Layers(range(4)), Ranks(range(4)), 4, 2),
    (by_rates(staged_plan(2, 1)), Layers((0, 1)), Ranks((0,)), 1, 1),
    (by_rates(staged_plan(2, 1)), Layers((2, 3)), Ranks((1,)), 1, 1),
    (by_rates(sharded_plan(4, [[(0, 4)]])), Layers(range(4)), Ranks(range(4)), 4, 2),
]


@pytest.mark.parametrize("case", PLANS)
def test_i_and_w_are_a_backward(case):
    found = passes_of(*case)
    back, inputs, weights = found["B"], found["I"], found["W"]
    assert inputs.value + weights.value == pytest.approx(back.value, rel=1e-12)
    assert (inputs.comm, weights.comm) == (back.comm, 0.0)
    assert 0 < weights.value <= inputs.value
    assert inputs.spread == weights.spread == back.spread
    assert inputs.source == weights.source == "analytic"


def test_weight_gradients_are_half_of_all_but_attention():
    """Two layers: 13 tokens of 0.5 ms and 7 ms once, halved; the rest of a backward is I's."""
    found = passes_of(*PLANS[0])
    assert found["W"].value == pytest.approx((0.5 * 13 + 7.0) / 2 * 1e-3)
    assert found["I"].value == pytest.approx((2e-3 * 89 + (0.5 * 13 + 7.0) / 2) * 1e-3)


def test_recomputation_is_part_of_input_gradients():
    plan = PLANS[0][0]
    again = with_fields(plan, layouts={"llm": with_fields(plan.layouts["llm"], recompute="full")})
    found = passes_of(again, *PLANS[0][1:])
    assert found["W"].value == pytest.approx(((0.5 - 0.2) * 13 + 7.0 - 3.0) / 2 * 1e-3)
    assert found["I"].value + found["W"].value == pytest.approx(found["B"].value)


def test_without_tokens_nothing_takes_time():
    price = pricing_of(PLANS[0][0]).price
    assert price(Task("llm", Layers((0,)), "W", 0, "g", Ranks((0,)))).value == 0.0
