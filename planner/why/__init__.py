"""Explains a plan, and what another would cost, by solving its problem again with a change."""

from planner.why.alternative_inputs import alternative_inputs
from planner.why.group_loads import GroupLoad, WhyGroup, group_loads
from planner.why.item_degrees import WhyItem
from planner.why.item_moves import ReadOutputs, WhyPlacedItem
from planner.why.mix_layouts import MixCandidate, MixChoice, MixComparison, MixPlan, best_for_mixes
from planner.why.plan_difference import differing_parts
from planner.why.plan_problem import asked_inputs, single_step
from planner.why.resolved import Sensitivity
from planner.why.restarts import Changes, MixPoint, Switch
from planner.why.static_degree import StaticComparison, StaticPlan, best_static_degree
from planner.why.step_facts import Facts, GroupFacts, ModuleFacts, ModuleLoad, step_facts
from planner.why.table_answers import WhyTable
from planner.why.why import WhyAnswer, why
from planner.why.why_not import WhyNot, why_not
from planner.why.why_plan import WhyPlan
