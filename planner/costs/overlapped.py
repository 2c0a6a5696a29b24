"""A plan as it would be priced if other exchanges ran beside its compute (specs/overlap.py).

What rates price is priced with the switched traits of the framework. Measured fits cannot be parted: a switch of what
is inside them is refused.
"""

from planner.errors import InputError
from planner.plan.model import Layout, Plan
from planner.specs.base import changed
from planner.specs.kinds import entry, kinds
from planner.specs.overlap import Overlap
from planner.specs.profile import ModuleCosts


def overlapped(plan: Plan, overlap: Overlap) -> Plan:
    """The plan with its prices as the switches have it. Raises InputError where its prices cannot say."""
    if not overlap.said:
        return plan
    prices = plan.uses.prices
    for name, layout in plan.layouts.items():
        for kind in kinds(plan.uses.cluster):
            costs = entry(prices.modules, name, kind)
            if costs:
                refuse(name, layout, costs, overlap)
    return changed(plan, uses=changed(plan.uses, prices=changed(prices, timing=overlap.traits(prices.timing))))


def refuse(name: str, layout: Layout, costs: ModuleCosts, overlap: Overlap) -> None:
    """Raises InputError when a switch is about what fits of a module have inside, or what is priced on top of them."""
    inside = {
        "tp": layout.tp > 1,
        "ep": layout.ep * layout.etp > 1 or bool(layout.experts),
        "dp": layout.zero == 3 and costs.sharding == "included",
    }
    for kind in overlap.said:
        if inside.get(kind):
            raise InputError(
                f"`{name}` is priced by fits, which do not say what of its {kind} exchanges compute could hide",
                where=f"--overlap {kind}",
                fix=f"leave {kind} out, or price the plan by its device's rates",
            )
