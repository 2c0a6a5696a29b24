"""The price table a plan carries: what was measured or published for its modules, analytic for the rest."""

from planner.costs.analytic import analytic_costs
from planner.plan.model import Layout, Prices
from planner.specs.inputs import Inputs
from planner.specs.profile import ModuleCosts


def price_table(inputs: Inputs, layouts: dict[str, Layout]) -> Prices:
    """Prices of every module that has a layout."""
    return Prices(
        profile=inputs.profile.name,
        modules={name: module_costs(inputs, name, layout) for name, layout in layouts.items()},
        collectives=inputs.profile.collectives,
    )


def module_costs(inputs: Inputs, module: str, layout: Layout) -> ModuleCosts:
    """The profile's entry for MODEL/MODULE, else the shape's analytic costs."""
    known = inputs.profile.modules.get(f"{inputs.model.name}/{module}")
    return known or analytic_costs(inputs.model.modules[module], inputs.device, layout.dtype, layout.recompute)
