"""A plan as it would be priced if other exchanges ran beside its compute (specs/overlap.py).

Prices that follow from rates are made again with the switched traits of the framework, for the step's own micro-batches
where the layout is static. Measured fits cannot be parted: a switch of what is inside them is refused.
"""

from dataclasses import replace

from planner.costs.recomputing import layered_costs, typical
from planner.costs.static.costs import exposed
from planner.costs.static.layouts import SCHEMES, Batch, machine_of, setup_of
from planner.costs.static.setup import Setup
from planner.errors import InputError
from planner.plan.model import Group, Layout, Plan, Prices, assignments
from planner.specs.base import changed
from planner.specs.kinds import kinds
from planner.specs.overlap import Overlap
from planner.specs.profile import ModuleCosts
from planner.specs.timing import Timing


def overlapped(plan: Plan, number: int, overlap: Overlap) -> Plan:
    """The plan with one step's prices as the switches have it. Raises InputError where its prices cannot say."""
    if not overlap.said:
        return plan
    old = plan.uses.prices
    modules, timing = dict(old.modules), overlap.traits(old.timing)
    for name, layout in plan.layouts.items():
        for kind in kinds(plan.uses.cluster):
            entry = f"{name}@{kind}" if f"{name}@{kind}" in modules else name
            if entry in modules:
                refuse(entry, layout, old.modules[entry], overlap)
                modules[entry] = repriced(plan, number, (name, layout, kind), old.modules[entry], timing)
    prices: Prices = changed(old, modules=modules, timing=timing)
    return changed(plan, uses=changed(plan.uses, prices=prices))


def by_layers(plan: Plan) -> Prices:
    """The prices of a plan; where its layers recompute unlike each other, with rates' prices of each kind of them: a
    layout that was changed by hand has prices for layers that are all alike.
    """
    old, modules = plan.uses.prices, dict(plan.uses.prices.modules)
    for name, layout in plan.layouts.items():
        words = {*layout.recomputes(range(plan.uses.models[name].layers))}
        for kind in kinds(plan.uses.cluster) if len(words) > 1 else ():
            entry = f"{name}@{kind}" if f"{name}@{kind}" in modules else name
            costs = modules.get(entry)
            if costs and costs.by == "rates" and not words <= {"none", *costs.recomputing}:
                made = repriced(plan, 0, (name, layout, kind), costs, old.timing)
                modules[entry] = changed(made, exposed=costs.exposed, spread=costs.spread)
    return changed(old, modules=modules) if modules != old.modules else old


def repriced(
    plan: Plan, number: int, which: tuple[str, Layout, str], costs: ModuleCosts, timing: Timing
) -> ModuleCosts:
    """Costs by rates with other traits; what was measured stays. `which`: the module, its layout, a kind of rank."""
    (name, layout, kind), uses = which, plan.uses
    if costs.by != "rates":
        return costs
    machine = machine_of(uses.cluster, uses.devices[kind], uses.prices.rates.get(kind), timing)
    spec, accounting = uses.models[name], uses.prices.accounting
    if not costs.exposed:
        return layered_costs(spec, layout, setup_of(layout), machine, accounting)
    setup = static_setup(plan, number, name)
    again = layered_costs(spec, layout, setup, machine, accounting)
    return changed(again, exposed=exposed(spec, typical(setup, layout, spec), machine), spread=costs.spread)


def static_setup(plan: Plan, number: int, module: str) -> Setup:
    """What a static layout's step is to the closed form: its micro-batches, of their mean length."""
    step, layout = plan.steps[number], plan.layouts[module]
    placed = [a for row in step.micro_batches for a in assignments(plan, row) if a.module == module]
    sizes = [plan.uses.items[module][item] for a in placed for item in a.items]
    mean = sum(size * size for size in sizes) / sum(sizes)
    most = float(max(len(a.items) for a in placed))
    group: Group = plan.groups[placed[0].group]
    setup = setup_of(layout, Batch(mean, sum(sizes) / mean, most), group.split.get("ring", 1))
    order = step.order_of(module)
    return replace(setup, scheme=SCHEMES[order]) if isinstance(order, str) and order in SCHEMES else setup


def refuse(name: str, layout: Layout, costs: ModuleCosts, overlap: Overlap) -> None:
    """Raises InputError when a switch is about what fits of a module have inside, or what is priced on top of them."""
    if costs.by == "rates":
        return
    inside = {
        "tp": layout.mesh.get("tp", 1) > 1,
        "ep": layout.experts.get("ep", 1) * layout.experts.get("etp", 1) > 1,
        "dp": layout.zero == 3 and costs.sharding == "included",
    }
    for kind in overlap.said:
        if inside.get(kind):
            raise InputError(
                f"`{name}` is priced by fits, which do not say what of its {kind} exchanges compute could hide",
                where=f"--overlap {kind}",
                fix=f"leave {kind} out, or price the plan by its device's rates",
            )
