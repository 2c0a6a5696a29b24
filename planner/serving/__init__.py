"""Servers of a model: static splits of GPUs among stages, bounds over all, and the goodput of the best."""

from planner.serving.answer import ServingAnswer, Wanted, answer
from planner.serving.best_split import ORDERS, Found, best_split, family_splits
from planner.serving.goodput import Question, greatest, history_of, in_time, repeated
from planner.serving.launched import launch_script
from planner.serving.served_inputs import Asked, ServedInputs, served_inputs
from planner.serving.split_bounds import SplitBounds
from planner.serving.splits import DEGREES, FAMILIES, Family, Share, Split, setup_of
from planner.simulate.serving import QueueOrder

__all__ = [
    "DEGREES",
    "FAMILIES",
    "ORDERS",
    "Asked",
    "Family",
    "Found",
    "Question",
    "QueueOrder",
    "ServedInputs",
    "ServingAnswer",
    "Share",
    "Split",
    "SplitBounds",
    "Wanted",
    "answer",
    "best_split",
    "family_splits",
    "greatest",
    "history_of",
    "in_time",
    "launch_script",
    "repeated",
    "served_inputs",
    "setup_of",
]
