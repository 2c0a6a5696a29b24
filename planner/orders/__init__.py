"""Orders of F, I and W on pipeline stages, independent of any plan: their times, the best found, and lower bounds."""

from planner.orders.anyhow import floor_of_any
from planner.orders.bound import Floor, floor_of
from planner.orders.problem import Objective, Order, Pipeline, even
from planner.orders.search import Found, search
from planner.orders.sequence import Sequenced, search_sequences
from planner.orders.timing import Times, held_peak, seconds_of, times

__all__ = [
    "Floor",
    "Found",
    "Objective",
    "Order",
    "Pipeline",
    "Sequenced",
    "Times",
    "even",
    "floor_of",
    "floor_of_any",
    "held_peak",
    "search",
    "search_sequences",
    "seconds_of",
    "times",
]
