"""Plans with prices, for tests that score them."""

from planner.plan.plan_file import Plan, Prices
from planner.specs.base import with_fields
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, ModuleCosts, PassCosts, PassFit

FIT = PassFit(ms_per_token2=1e-3, ms_per_token=0.1, ms=0.1)


def priced(plan: Plan, degrees: tuple[int, ...] = ()) -> Plan:
    """Every layer alike, attention a small part; passes of both directions take the same time."""
    layer = PassCosts(forward=FIT, backward=FIT, activation_kib_per_token=1.0)
    costs = ModuleCosts(source="analytic", spread=0.1, layer=layer, update_ns_per_parameter=1.0)
    p2p = CollectiveCosts(
        source="analytic", spread=0.1, points=(CollectivePoint(ranks=2, gb_per_s=10.0, latency_us=1.0),)
    )
    prices = Prices(profile="made up", modules=dict.fromkeys(plan.layouts, costs), collectives={"p2p": p2p})
    return with_fields(plan, uses=with_fields(plan.uses, degrees=degrees, prices=prices))
