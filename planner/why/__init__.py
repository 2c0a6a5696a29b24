"""Explains a plan, and what another would cost, by solving its problem again with a change."""

from planner.why.alternative_inputs import alternative_inputs
from planner.why.best_changes import Changes
from planner.why.group_loads import GroupLoad, group_loads
from planner.why.group_reasons import WhyGroup
from planner.why.item_reasons import WhyItem
from planner.why.joint_facts import JointFacts, ModuleLoad, joint_facts
from planner.why.joint_item_reasons import ReadOutputs, WhyJointItem
from planner.why.joint_why import JointWhyPlan
from planner.why.joint_why_not import JointWhyNot
from planner.why.mix_layouts import MixChoice, MixPlan, best_for_mixes
from planner.why.mix_table import MixCandidate, MixComparison
from planner.why.plan_problem import single_step
from planner.why.restart_repaid import MixPoint, Switch
from planner.why.sensitivity import Sensitivity
from planner.why.static_degree import StaticComparison, StaticPlan, best_static_degree
from planner.why.step_facts import StepFacts, step_facts
from planner.why.why import WhyAnswer, why
from planner.why.why_not import WhyNot, why_not
from planner.why.why_plan import WhyPlan

__all__ = [
    "Changes",
    "GroupLoad",
    "JointFacts",
    "JointWhyNot",
    "JointWhyPlan",
    "MixCandidate",
    "MixChoice",
    "MixComparison",
    "MixPlan",
    "MixPoint",
    "ModuleLoad",
    "ReadOutputs",
    "Sensitivity",
    "StaticComparison",
    "StaticPlan",
    "StepFacts",
    "Switch",
    "WhyAnswer",
    "WhyGroup",
    "WhyItem",
    "WhyJointItem",
    "WhyNot",
    "WhyPlan",
    "alternative_inputs",
    "best_for_mixes",
    "best_static_degree",
    "group_loads",
    "joint_facts",
    "single_step",
    "step_facts",
    "why",
    "why_not",
]
