"""Explains a plan, and what another would cost, by solving its own problem again with something changed."""

from planner.why.group import WhyGroup, why_group
from planner.why.item import WhyItem, why_item
from planner.why.sensitivity import WhyPlan, why_plan
from planner.why.static import StaticComparison, StaticPlan, best_static_degree
from planner.why.why_not import WhyNot, why_not

__all__ = [
    "StaticComparison",
    "StaticPlan",
    "WhyGroup",
    "WhyItem",
    "WhyNot",
    "WhyPlan",
    "best_static_degree",
    "why_group",
    "why_item",
    "why_not",
    "why_plan",
]
