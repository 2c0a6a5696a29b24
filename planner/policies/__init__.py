"""Policies of a cluster that many jobs share: who gets how many GPUs of which kind, when, and what comes of it."""

from planner.policies.choice import PLACE_NAMES, policy, policy_names
from planner.policies.fair import least_makespan
from planner.policies.numbering import nearest_gpus
from planner.policies.orders import ORDERS
from planner.policies.replay import replayed
from planner.policies.schedule import Schedule, happened, schedule_jobs

__all__ = [
    "ORDERS",
    "PLACE_NAMES",
    "Schedule",
    "happened",
    "least_makespan",
    "nearest_gpus",
    "policy",
    "policy_names",
    "replayed",
    "schedule_jobs",
]
