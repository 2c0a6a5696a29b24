"""Experts on other ranks, of modules that were measured on one: what ranks send is what the runtime counts."""

from collections import Counter

import pytest

from planner.costs.pricing import pricing_of
from planner.plan.plan_file import Plan, Prices
from planner.plan.tasks.expand import expand
from planner.runtime.run_options import RunOptions
from planner.specs.base import with_fields
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, ModuleCosts, PassCosts, PassFit
from planner.specs.layers.components import Experts
from tests.examples import soaked
from tests.runtime.training_worlds import DECODER, asked_for, run_all, spread

NOTHING = PassCosts(forward=PassFit(), backward=PassFit())
ALONE = ModuleCosts(  # measured of one rank: comm alone is left
    source="fitted", spread=0.1, layer=NOTHING, recomputing={"selective": NOTHING, "full": NOTHING}, ends=NOTHING
)
MIXTURE = with_fields(DECODER, hidden=64, head_dim=8, moe=Experts(experts=4, topk=4, ffn=16))  # all, so balanced
OWN = [[(rank,) for rank in range(4)]] * 2
PLANS = {  # and the ranks among which rows are exchanged
    "ep": (spread(4, MIXTURE, dp=4, ep=4, rows=OWN), 4),
    "ep, recomputed": (spread(4, MIXTURE, dp=4, ep=4, rows=OWN, recompute="full"), 4),
    "ep, one layer recomputed": (spread(4, MIXTURE, dp=4, ep=4, rows=OWN, recompute={"1": "full"}), 4),
    "ep, copies": (spread(4, MIXTURE, dp=4, ep=2, rows=OWN, zero=1), 2),
    "ep and etp": (spread(4, MIXTURE, dp=4, ep=2, etp=2, rows=OWN), 2),
    "gathered": (spread(4, MIXTURE, dp=4, ep=4, rows=OWN, dispatch="all_gather"), 4),
    "folded over tp": (spread(4, MIXTURE, dp=2, tp=2, ep=4, rows=[[(0, 1), (2, 3)]], zero=1), 4),
    "stages": (spread(4, MIXTURE, pp=2, dp=2, ep=2, rows=[[(0, 2), (1, 3)]] * 2, zero=1), 2),
}


def even(plan: Plan) -> Plan:
    """With items of one length: every rank has equally many tokens."""
    items = dict.fromkeys(plan.uses.items["llm"], 96)
    return with_fields(plan, uses=with_fields(plan.uses, items={"llm": items}))


def predicted(plan: Plan, ranks: int, **costs) -> dict[str, float]:
    """By phase of passes, the bytes that all ranks send to experts on others."""
    tables = {
        kind: CollectiveCosts(source="measured", spread=0.1, points=(CollectivePoint(ranks=8, gb_per_s=speed),))
        for kind, speed in (("all_to_all", 1.0), *((each, 1e15) for each in ("all_gather", "reduce_scatter", "p2p")))
    }
    prices = Prices(profile="made up", modules={"llm": with_fields(ALONE, **costs)}, collectives=tables)
    pricing, found = pricing_of(with_fields(plan, uses=with_fields(plan.uses, prices=prices))), Counter()
    for task in expand(plan):
        if task.phase in "FB":
            found[task.phase] += pricing.price(task).comm * 1e9 * (ranks - 1) / ranks * len(task.ranks)
    return dict(found)


LAUNCHED = (  # the others in the soak
    "ep, one layer recomputed", "ep and etp", "gathered", "folded over tp", "stages",
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(request):
    asked = asked_for(request, "launched")
    return run_all(4, {name: even(PLANS[name][0]) for name in asked}, RunOptions(steps=1, seed=5))


@pytest.mark.slow
@pytest.mark.parametrize("launched", soaked(PLANS, LAUNCHED))
@pytest.mark.every(5)
def test_bytes_are_those_that_the_runtime_counts(runs, launched):
    plan, ranks = PLANS[launched]
    counted = sum(sent["ep"] for sent in runs[launched].steps[0].sent_bytes)
    assert sum(predicted(even(plan), ranks).values()) == pytest.approx(counted, rel=0.02)


@pytest.mark.parametrize("name", PLANS)
def test_backward_sends_what_forward_did_and_again_what_it_recomputes(name):
    plan, ranks = PLANS[name]
    sent, layers = predicted(even(plan), ranks), range(MIXTURE.layers)
    again = plan.layouts["llm"].recompute_counts(layers).get("full", 0) / MIXTURE.layers
    assert sent["F"] > 0
    assert sent["B"] == pytest.approx((1 + again) * sent["F"], rel=0.04)  # choices and their weights come along


def test_published_fits_have_it_included():
    plan, ranks = PLANS["ep"]
    assert predicted(even(plan), ranks, source="published") == {"F": 0.0, "B": 0.0}
