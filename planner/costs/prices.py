"""The price table a plan carries: what was measured or published for its modules, analytic for the rest."""

from planner.costs.analytic import analytic_costs
from planner.plan.model import Layout, Prices
from planner.specs.inputs import Inputs
from planner.specs.kinds import entry, kinds, on_kind
from planner.specs.profile import ModuleCosts


def price_table(inputs: Inputs, layouts: dict[str, Layout]) -> Prices:
    """Prices of every module that has a layout, on every kind of rank."""
    among = kinds(inputs.cluster)
    return Prices(
        profile=inputs.profile.name,
        modules={
            on_kind(name, kind, among): module_costs(inputs, name, layout, kind)
            for name, layout in layouts.items()
            for kind in among
        },
        collectives=inputs.profile.collectives,
    )


def module_costs(inputs: Inputs, module: str, layout: Layout, kind: str) -> ModuleCosts:
    """The profile's entry for MODEL/MODULE, else the shape's analytic costs."""
    known = entry(inputs.profile.modules, f"{inputs.model.name}/{module}", kind)
    return known or analytic_costs(inputs.model.modules[module], inputs.devices[kind], layout.dtype, layout.recompute)
