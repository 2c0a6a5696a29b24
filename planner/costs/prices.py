"""The price table a plan carries: what was measured or published for its modules, and what rates give for the rest."""

from planner.costs.recomputing import layered_costs, require_told
from planner.costs.static.costs import exposed, static_costs
from planner.costs.static.layouts import machine_of, setup_of
from planner.costs.static.setup import Setup
from planner.plan.model import Layout, Prices
from planner.specs.base import changed
from planner.specs.inputs import Inputs
from planner.specs.kinds import entry, kinds, on_kind
from planner.specs.model import Module, head_dim
from planner.specs.profile import ModuleCosts
from planner.specs.rates import Rates
from planner.specs.timing import Timing


def price_table(inputs: Inputs, layouts: dict[str, Layout], setups: dict[str, Setup] | None = None) -> Prices:
    """Prices of every module that has a layout, on every kind of rank.

    `setups`: of modules whose layout is for equal micro-batches, with what their step then waits for.
    """
    static = setups or {}
    among = kinds(inputs.cluster)
    modules = {
        on_kind(name, kind, among): static_entry(inputs, name, static[name], kind)
        if name in static
        else module_costs(inputs, name, layout, kind)
        for name, layout in layouts.items()
        for kind in among
    }
    followed = any(costs.by == "rates" for costs in modules.values())
    specs = [inputs.model.modules[name] for name in layouts]
    return Prices(
        profile=inputs.profile.name,
        modules=modules,
        collectives=inputs.profile.collectives,
        rates={kind: needed(rates, specs, layouts) for kind, rates in inputs.rates.items()} if followed else {},
        timing=inputs.timing if followed else Timing(),
        accounting=inputs.accounting,
    )


def module_costs(inputs: Inputs, module: str, layout: Layout, kind: str) -> ModuleCosts:
    """The profile's entry for MODEL/MODULE, else what its shape costs at the device's rates.

    Raises InputError when the entry was measured of layers that make nothing again, and the layout's do.
    """
    name = f"{inputs.model.name}/{module}"
    known = entry(inputs.profile.modules, name, kind)
    if known:
        fix = f"measure it again (planner profile {inputs.model.name}), or say recompute: none"
        layers, where = range(inputs.model.modules[module].layers), f"profile {inputs.profile.name}"
        require_told(known, layout, layers, name, where, fix)
        return known
    machine = machine_of(inputs.cluster, inputs.devices[kind], inputs.rates.get(kind), inputs.timing)
    return layered_costs(inputs.model.modules[module], layout, setup_of(layout), machine, inputs.accounting)


def static_entry(inputs: Inputs, module: str, setup: Setup, kind: str) -> ModuleCosts:
    """What a static layout costs at the device's rates, whatever was measured of the module spread otherwise."""
    machine = machine_of(inputs.cluster, inputs.devices[kind], inputs.rates.get(kind), inputs.timing)
    spec = inputs.model.modules[module]
    costs = static_costs(spec, setup, machine, inputs.accounting)
    spread = max(costs.spread, inputs.software_spread)  # what the framework does of it is in it, too
    return changed(costs, exposed=exposed(spec, setup, machine), spread=round(spread, 4))


def needed(rates: Rates, modules: list[Module], layouts: dict[str, Layout]) -> Rates:
    """Of a device's rates, those that these modules are computed with; where they come from stays in its profile."""
    dtypes = {"bf16", *(layout.dtype for layout in layouts.values())}
    widths = {"any", *(str(head_dim(module)) for module in modules)}
    return changed(
        rates,
        gemm={dtype: curve for dtype, curve in rates.gemm.items() if dtype in dtypes},
        attention={width: curve for width, curve in rates.attention.items() if width in widths},
        sustained={dtype: share for dtype, share in rates.sustained.items() if dtype in dtypes},
        fitted={},
    )
