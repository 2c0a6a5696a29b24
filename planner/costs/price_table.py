"""The price table that a plan carries: fits that were measured or published for its modules, and rates for the
others.
"""

from planner.costs.compute.assumed_rates import complete_rates
from planner.costs.compute.recompute_fits import require_measured_recompute
from planner.plan.plan_file import Layout, Prices
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import entry_name, entry_of_kind, rank_kinds
from planner.specs.hardware.device_rates import DeviceRates
from planner.specs.hardware.profile import ModuleCosts
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
    )


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
