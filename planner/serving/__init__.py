"""Servers of a model: static splits of GPUs among stages, bounds over all, and the goodput of the best."""

from planner.serving.answer import ServingAnswer, answer
from planner.serving.best_split import ORDERS, Found, best_split, family_splits
from planner.serving.decided import actions_file, decided_again, is_repriced
from planner.serving.elastic import ElasticAnswer
from planner.serving.goodput import Question, greatest
from planner.serving.launched import launch_script
from planner.serving.served_inputs import Asked, served_inputs
from planner.serving.split_bounds import SplitBounds
from planner.serving.splits import FAMILIES, Split
