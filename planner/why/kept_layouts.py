"""A step of several modules planned again with its own layouts, or with some of them changed: samples in groups by the
strategy that decides these, others as layouts by hand.
"""

from collections.abc import Mapping

from planner.errors import InputError
from planner.plan.plan_file import Layout, Plan
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism, decided_fields
from planner.strategies import strategy_called, unsupported
from planner.strategies.assignment import few_orders, orders_of
from planner.strategies.static import changed_layouts, fixing, plan_of_layouts
from planner.why.apply_changes import AskedChange
from planner.why.resolved import SolveAgain


def decides_groups(step: Plan) -> bool:
    """Whether the strategy of a plan places samples in groups that change with every micro-batch."""
    return "groups" in step.made.decided


def placed_again(inputs: Inputs, step: Plan, layouts: Mapping[str, Layout]) -> Plan:
    """The plan of a step's problem with these layouts of its encoders, and of the LLM where it has one. Raises
    InputError, and Infeasible.
    """
    if not decides_groups(step):
        orders = [orders_of(step), *few_orders(inputs, layouts)]
        return plan_of_layouts(inputs, dict(layouts), orders=orders)
    return strategy_called(step.made.strategy).plan(inputs, with_fields(step, layouts=dict(layouts)))


def kept_plan(change: AskedChange, step: Plan) -> Plan:
    """The plan in which all modules that were not asked about keep their layouts. Raises InputError, and Infeasible."""
    grouped = decides_groups(step)
    if grouped:
        require_supported(step, problem_of_strategy(step, change))
    layouts = changed_layouts(change.inputs, change.asked, step.layouts, runs=not grouped)
    return placed_again(change.inputs, step, layouts)


def decided_again(change: AskedChange, step: Plan, resolve: SolveAgain) -> Plan:
    """The plan in which the plan's own strategy decides all that the job leaves open. Raises InputError, and
    Infeasible.
    """
    problem = problem_of_strategy(step, change)
    if not decides_groups(step):
        return resolve(problem)
    require_supported(step, problem)
    return strategy_called(step.made.strategy).plan(problem, None)


def require_supported(step: Plan, problem: Inputs) -> None:
    """Raises InputError where the strategy of a plan does not keep what is fixed."""
    reason = unsupported(step.made.strategy, problem)
    if reason:
        message, _, fix = reason.partition(" | ")
        raise InputError(message, where="strategy", fix=fix)


def problem_of_strategy(step: Plan, change: AskedChange) -> Inputs:
    """The problem of the plan's own strategy, with what its job fixed and what is asked for."""
    fixed = dict(step.uses.fix.layouts)
    for name, wish in change.asked.items():
        fixed[name] = with_fields(fixed.get(name, Parallelism()), **decided_fields(wish))
    return fixing(change.inputs, fixed)
