"""Orders of F, I and W on pipeline stages, independent of any plan: their times, the best found, and lower bounds."""

from planner.orders.anyhow import bound_any_sequence
from planner.orders.bound import OrderBound, bound_fixed_sequence
from planner.orders.problem import OrderObjective, Order, PipelineProblem, uniform_pipeline
from planner.orders.search import OrderResult, search_order
from planner.orders.sequence import SequencedOrder, search_sequences
from planner.orders.timing import SlotTimes, peak_activations, objective_seconds, slot_times

__all__ = [
    "OrderBound",
    "OrderResult",
    "OrderObjective",
    "Order",
    "PipelineProblem",
    "SequencedOrder",
    "SlotTimes",
    "uniform_pipeline",
    "bound_fixed_sequence",
    "bound_any_sequence",
    "peak_activations",
    "search_order",
    "search_sequences",
    "objective_seconds",
    "slot_times",
]
