"""Answers "why" of a plan, of one of its items, of one of its groups, or of one of its embedding tables."""

from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.units import first_few
from planner.why.group_loads import WhyGroup, why_group
from planner.why.item_degrees import WhyItem, item_degrees
from planner.why.item_moves import WhyPlacedItem, item_moves
from planner.why.plan_problem import require_groups, sample_module, single_step
from planner.why.resolved import SolveAgain
from planner.why.table_answers import WhyTable, why_table
from planner.why.why_plan import WhyPlan, why_plan

MAX_DIGITS = 9  # of an item's number
WhyAnswer = WhyPlan | WhyItem | WhyPlacedItem | WhyGroup | WhyTable


def why(plan: Plan, step: int, what: str | None, resolve: SolveAgain) -> WhyAnswer:
    """Why an item (a number, or `vision.12`), a group or an embedding table (by name) of a step is as it is; without
    one, what would make the step shorter.

    Raises InputError where there is no such item or group.
    """
    if what is None:
        return why_plan(plan, step, resolve)
    if what in plan.uses.tables:
        return why_table(plan, what)
    item = asked_item(plan, what)
    if item is None:
        return why_group(plan, step, what)
    return why_item(plan, step, *item, resolve)


def why_item(plan: Plan, number: int, module: str, item: int, resolve: SolveAgain) -> WhyItem | WhyPlacedItem:
    """Why an item is where it is. Raises InputError when the step has no such item, or its plan places none."""
    step, several = single_step(plan, number), len(plan.layouts) > 1
    if not several:
        require_groups(step)
    sizes = step.uses.items.get(module, {})
    if item not in sizes:
        of = f" of `{module}`" if several else ""
        fix = f"one of {first_few(sorted(sizes))}"
        raise InputError(f"step {number} of the plan has no item {item}{of}", where="ITEM", fix=fix)
    return item_moves(step, number, module, item) if several else item_degrees(step, number, item, resolve)


def asked_item(plan: Plan, what: str) -> tuple[str, int] | None:
    """The module and the number of an item: `12` of the samples' module, or `vision.12` where there are several
    modules; None where no item is asked about.
    """
    several = len(plan.layouts) > 1
    module, _, number = what.rpartition(".") if several else ("", "", what)
    is_group = several and what in plan.groups
    if is_group or not number.isdecimal() or len(number) > MAX_DIGITS or module not in {"", *plan.layouts}:
        return None
    return module or sample_module(plan), int(number)
