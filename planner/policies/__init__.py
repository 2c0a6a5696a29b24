"""Policies of GPUs that many share: which job gets how many of which kind, when; which server takes on which stage."""

from planner.policies.choice import PLACE_NAMES, TEACHERS, policy, policy_names
from planner.policies.elastic_serving import ElasticChoice, ElasticServing
from planner.policies.fair import least_makespan
from planner.policies.grants import FEATURES, Allocation, Floats, Grants, towards
from planner.policies.learned import LearnedPolicy, granted
from planner.policies.numbering import nearest_gpus, placed
from planner.policies.orders import ORDERS
from planner.policies.policy_weights import CLIPPED, HIDDEN, LINE, PolicyWeights, read_policy
from planner.policies.replay import replayed
from planner.policies.schedule import Schedule, happened, schedule_jobs
from planner.policies.want import Want, Wants
from planner.policies.wanted_actions import decided_anew
