"""Re-prices a plan with kinds of overlap of communication and compute on or off (specs/framework/overlap.py).

Modules priced by rates get the switched coefficients of the framework. Measured fits cannot be taken apart, so a switch
of communication that is inside them is refused.
"""

from planner.errors import InputError
from planner.plan.plan_file import Layout, Plan
from planner.specs.base import with_fields
from planner.specs.framework.overlap import Overlap
from planner.specs.hardware.cluster import entry_of_kind, rank_kinds
from planner.specs.hardware.profile import ModuleCosts


def with_overlap(plan: Plan, overlap: Overlap) -> Plan:
    """The plan with prices by these switches. Raises InputError where its prices cannot tell."""
    if not overlap.switched:
        return plan
    prices = plan.uses.prices
    for name, layout in plan.layouts.items():
        for kind in rank_kinds(plan.uses.cluster):
            costs = entry_of_kind(prices.modules, name, kind)
            if costs:
                refuse_switches(name, layout, costs, overlap)
    return with_fields(
        plan, uses=with_fields(plan.uses, prices=with_fields(prices, timing=overlap.switched_timing(prices.timing)))
    )


def refuse_switches(name: str, layout: Layout, costs: ModuleCosts, overlap: Overlap) -> None:
    """Raises InputError where a switch concerns communication that the fits of a module include, or that is priced on
    top of them.
    """
    inside = {
        "tp": layout.tp > 1,
        "ep": layout.ep * layout.etp > 1 or bool(layout.experts),
        "dp": layout.zero == 3 and costs.sharding == "included",
    }
    for kind in overlap.switched:
        if inside.get(kind):
            raise InputError(
                f"`{name}` is priced by fits, which do not say what of its {kind} exchanges compute could hide",
                where=f"--overlap {kind}",
                fix=f"leave {kind} out, or price the plan by its device's rates",
            )
