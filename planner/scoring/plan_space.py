"""The bound over the space of static layouts that a plan was chosen from, found again from the plan alone."""

from planner.costs import machine_of
from planner.costs.memory import device_accounting
from planner.layouts import LayoutProblem, TrainingSetup, layout_bounds, layouts_of, space_bound
from planner.plan.plan_file import Plan
from planner.scoring.bounded_step import step_sizes
from planner.specs.hardware.cluster import device_of_rank


def plan_space_seconds(plan: Plan) -> float:
    """Seconds that no layout of the space can beat; infinite where nothing in it fits. The plan has one module and one
    step, and its `uses.fix` all fields that were fixed.
    """
    uses, (name,) = plan.uses, plan.layouts
    kind = device_of_rank(uses.cluster, 0)
    device, fixed = uses.devices[kind], uses.fix.layouts.get(name)
    sizes = tuple(step_sizes(plan, 0, name).values())
    trained = TrainingSetup(uses.models[name], plan.size, sizes, *([fixed] if fixed else []))
    accounting = device_accounting(device, uses.prices.accounting)
    machine = machine_of(uses.cluster, device, uses.prices.rates.get(kind), uses.prices.timing, accounting)
    problem = LayoutProblem(trained, machine, accounting, uses.limits, uses.software.knobs)
    bounds = layout_bounds(problem, layouts_of(problem, trained.fixed))
    return space_bound(problem, bounds).seconds
