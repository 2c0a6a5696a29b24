"""Samples on groups that change with every micro-batch, and encoders with static layouts on the ranks of all groups."""

from planner.strategies.colocated.grouped_plan import Grouping, plan_beside_encoders, unsupported_beside_encoders
