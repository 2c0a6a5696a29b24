"""Moved to `planner.plan.catalogue`."""

from planner.plan.catalogue import EXPERT_GROUPS, MESH_GROUPS, catalogue, sequence_groups, sharing

__all__ = ["EXPERT_GROUPS", "MESH_GROUPS", "catalogue", "sequence_groups", "sharing"]
