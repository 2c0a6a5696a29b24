"""A clock of servers of a model: requests, instances with stages, queues, caches, and moves between stages."""

from planner.simulate.serving.clock import ServingClock, work_seconds
from planner.simulate.serving.history import NEVER, Served, ServingHistory
from planner.simulate.serving.instance import ANSWERS, IMAGES, PROMPTS, SWITCH
from planner.simulate.serving.serving_state import InstanceView, ServingAction, ServingDecide, ServingState
from planner.simulate.serving.setup import BLOCK, InstanceSpec, QueueOrder, ServingSetup, Stages, pages_of
