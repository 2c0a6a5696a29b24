"""Answers "why" of a plan, of one of its items, or of one of its groups."""

from planner.plan.plan_file import Plan
from planner.why.group_reasons import WhyGroup, why_group
from planner.why.item_reasons import WhyItem, why_item
from planner.why.joint_item_reasons import WhyJointItem, why_joint_item
from planner.why.joint_why import JointWhyPlan, joint_why_plan
from planner.why.plan_problem import sample_module, single_step
from planner.why.resolved import SolveAgain
from planner.why.why_plan import WhyPlan, why_plan

MAX_DIGITS = 9  # of an item's number
WhyAnswer = WhyPlan | JointWhyPlan | WhyItem | WhyJointItem | WhyGroup


def why(plan: Plan, step: int, what: str | None, resolve: SolveAgain) -> WhyAnswer:
    """Why an item (a number, or `vision.12`) or a group (a name) of a step is as it is; without one, what would make
    the step shorter.

    Raises InputError where there is no such item or group.
    """
    if what is None and len(plan.layouts) > 1:
        return joint_why_plan(plan, step, single_step(plan, step))
    if what is None:
        return why_plan(plan, step, resolve)
    asked = len(plan.layouts) > 1 and joint_item(plan, what)
    if asked:
        return why_joint_item(plan, step, single_step(plan, step), *asked)
    if what.isdecimal() and len(what) <= MAX_DIGITS:
        return why_item(plan, step, int(what), resolve)
    return why_group(plan, step, what)


def joint_item(plan: Plan, what: str) -> tuple[str, int] | None:
    """The module and the number of an item of a plan of several modules: `vision.12`, or `12` of the samples' module;
    None where no item is asked about.
    """
    module, _, number = what.rpartition(".")
    if what in plan.groups or not number.isdecimal() or len(number) > MAX_DIGITS or module not in {"", *plan.layouts}:
        return None
    return module or sample_module(plan), int(number)
