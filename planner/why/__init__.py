"""Explains a plan, and what another would cost, by solving its own problem again with something changed."""

from planner.why.group_reasons import WhyGroup, why_group
from planner.why.item_reasons import WhyItem, why_item
from planner.why.sensitivity import WhyPlan, why_plan
from planner.why.static_degree import StaticComparison, StaticPlan, best_static_degree
from planner.why.why import why
from planner.why.why_not import WhyNot, why_not

__all__ = [
    "StaticComparison",
    "StaticPlan",
    "WhyGroup",
    "WhyItem",
    "WhyNot",
    "WhyPlan",
    "best_static_degree",
    "why",
    "why_not",
]
