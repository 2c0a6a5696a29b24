"""Policies of a cluster that many jobs share: who gets how many GPUs of which kind, when, and what comes of it."""

from planner.policies.choice import PLACE_NAMES, policy, policy_names
from planner.policies.fair import least_makespan
from planner.policies.numbering import nearest_gpus, placed
from planner.policies.orders import ORDERS
from planner.policies.replay import replayed
from planner.policies.schedule import Schedule, happened, schedule_jobs
from planner.policies.want import Want

__all__ = [
    "ORDERS",
    "PLACE_NAMES",
    "Schedule",
    "Want",
    "happened",
    "least_makespan",
    "nearest_gpus",
    "placed",
    "policy",
    "policy_names",
    "replayed",
    "schedule_jobs",
]
