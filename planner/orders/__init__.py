"""Orders of F, I and W on pipeline stages, apart from any plan: what they take, the best found, what none can beat."""

from planner.orders.bound import Floor, floor_of
from planner.orders.problem import Objective, Order, Pipeline, even
from planner.orders.search import Found, search
from planner.orders.timing import Times, held_peak, seconds_of, times

__all__ = [
    "Floor",
    "Found",
    "Objective",
    "Order",
    "Pipeline",
    "Times",
    "even",
    "floor_of",
    "held_peak",
    "search",
    "seconds_of",
    "times",
]
