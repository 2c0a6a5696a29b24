"""Explains a plan, and what another would cost, by solving its own problem again with something changed."""

from planner.why.group import WhyGroup, why_group
from planner.why.item import WhyItem, why_item
from planner.why.sensitivity import WhyPlan, why_plan
from planner.why.static import Static, StaticPlan, static
from planner.why.why_not import WhyNot, why_not

__all__ = [
    "Static",
    "StaticPlan",
    "WhyGroup",
    "WhyItem",
    "WhyNot",
    "WhyPlan",
    "static",
    "why_group",
    "why_item",
    "why_not",
    "why_plan",
]
