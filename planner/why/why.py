"""Answers "why" of a plan, of one of its items, or of one of its groups."""

from planner.plan.plan_file import Plan
from planner.why.group_reasons import WhyGroup, why_group
from planner.why.item_reasons import WhyItem, why_item
from planner.why.joint_why import JointWhyPlan, joint_why_plan
from planner.why.plan_problem import single_step
from planner.why.resolved import SolveAgain
from planner.why.why_plan import WhyPlan, why_plan

MAX_DIGITS = 9  # of an item's number
WhyAnswer = WhyPlan | JointWhyPlan | WhyItem | WhyGroup


def why(plan: Plan, step: int, what: str | None, resolve: SolveAgain) -> WhyAnswer:
    """Why an item (a number) or a group (a name) of a step is as it is; without one, what would make the step shorter.

    Raises InputError where there is no such item or group.
    """
    if what is None and len(plan.layouts) > 1:
        return joint_why_plan(plan, step, single_step(plan, step))
    if what is None:
        return why_plan(plan, step, resolve)
    if what.isdecimal() and len(what) <= MAX_DIGITS:
        return why_item(plan, step, int(what), resolve)
    return why_group(plan, step, what)
