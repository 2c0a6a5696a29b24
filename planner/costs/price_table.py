"""The price table that a plan carries: fits that were measured or published for its modules, and rates for the others.

Kinds of overlap of communication and compute can be switched on or off in it (specs/framework/overlap.py). Modules
priced by rates get the switched coefficients of the framework. Measured fits cannot be taken apart, so a switch of
communication that is inside them is refused.
"""

from collections.abc import Mapping

from planner.costs.compute.assumed_rates import complete_rates
from planner.costs.compute.fit_lines import require_measured_recompute
from planner.errors import InputError
from planner.plan.plan_file import Layout, Plan, Prices
from planner.specs.base import with_fields
from planner.specs.framework.overlap import Overlap
from planner.specs.hardware.cluster import entry_name, entry_of_kind, rank_kinds
from planner.specs.hardware.device_rates import DeviceRates
from planner.specs.hardware.profile import DeviceShares, ModuleCosts
from planner.specs.inputs import Inputs
from planner.specs.layers import Module
from planner.specs.layers.head_widths import head_dim


def price_table(inputs: Inputs, layouts: dict[str, Layout]) -> Prices:
    """Prices of every module that has a layout, on every kind of device in the cluster."""
    device_kinds = rank_kinds(inputs.cluster)
    found = {
        (name, kind): measured_costs(inputs, name, layouts[name], kind) for name in layouts for kind in device_kinds
    }
    specs = [inputs.model.modules[name] for name in layouts]
    unknown = [kind for kind in device_kinds if any(found[name, kind] is None for name in layouts)]
    return Prices(
        profile=inputs.profile.name,
        modules={entry_name(name, kind, device_kinds): costs for (name, kind), costs in found.items() if costs},
        collectives=inputs.profile.collectives,
        rates={kind: used_rates(device_rates(inputs, kind), specs, layouts) for kind in unknown},
        timing=inputs.timing,
        accounting=inputs.accounting,
        spread=inputs.software_spread,
        own_runs=inputs.own_runs,
        shares=timed_shares(inputs, layouts) if len(layouts) > 1 else None,
    )


def timed_shares(inputs: Inputs, layouts: Mapping[str, Layout]) -> DeviceShares | None:
    """The profile's shares of a device among these modules; None where nobody timed them. Raises InputError where they
    are of another device.
    """
    timed, kinds = inputs.profile.shares, rank_kinds(inputs.cluster)
    if timed is None:
        return None
    if timed.device and timed.device not in kinds:
        raise InputError(
            f"shares were timed on `{timed.device}`, and the cluster has {', '.join(kinds)}",
            where=f"profile {inputs.profile.name} (shares.device)",
            fix="leave `shares` out of it, or time them there: planner profile --shares 0.5,1",
        )
    names = {f"{inputs.model.name}/{name}": name for name in layouts}
    own = {names[name]: share for name, share in timed.memory_shares.items() if name in names}
    return with_fields(timed, memory_shares=own)


def measured_costs(inputs: Inputs, module: str, layout: Layout, kind: str) -> ModuleCosts | None:
    """The profile's entry for MODEL/MODULE on a kind of device; None where it was not measured.

    Raises InputError where the entry was measured without the recomputation that the layout asks for.
    """
    name = f"{inputs.model.name}/{module}"
    known = entry_of_kind(inputs.profile.modules, name, kind)
    if known:
        fix = f"measure it again (planner profile {inputs.model.name}), or say recompute: none"
        layers, where = range(inputs.model.modules[module].layers), f"profile {inputs.profile.name}"
        require_measured_recompute(known, layout, layers, name, where, fix)
    return known


def device_rates(inputs: Inputs, kind: str) -> DeviceRates:
    """Rates of a device kind, or those assumed of a device like it."""
    return inputs.rates.get(kind) or complete_rates(None, inputs.devices[kind].kind)


def used_rates(rates: DeviceRates, modules: list[Module], layouts: dict[str, Layout]) -> DeviceRates:
    """The rates that these modules use, of all that a device has; `source` stays, what they were fitted on does not."""
    dtypes = {"bf16", *(layout.dtype for layout in layouts.values())}
    widths = {"any", *(str(head_dim(module)) for module in modules)}
    return with_fields(
        rates,
        gemm={dtype: curve for dtype, curve in rates.gemm.items() if dtype in dtypes},
        attention={width: curve for width, curve in rates.attention.items() if width in widths},
        sustained={dtype: share for dtype, share in rates.sustained.items() if dtype in dtypes},
        fitted={},
    )


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
