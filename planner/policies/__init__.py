"""Policies of GPUs that many share: which job gets how many of which kind, when; which server takes on which stage."""

from planner.policies.choice import PLACE_NAMES, policy, policy_names
from planner.policies.elastic_serving import ElasticChoice, ElasticServing
from planner.policies.fair import least_makespan
from planner.policies.numbering import nearest_gpus, placed
from planner.policies.orders import ORDERS
from planner.policies.replay import replayed
from planner.policies.schedule import Schedule, happened, schedule_jobs
from planner.policies.want import Want

__all__ = [
    "ORDERS",
    "PLACE_NAMES",
    "ElasticChoice",
    "ElasticServing",
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
