"""Orders of passes on pipeline stages, apart from any plan: times, the best found, lower bounds."""

from planner.orders.any_sequence_bound import bound_any_sequence
from planner.orders.fixed_sequence_bound import bound_fixed_sequence
from planner.orders.order_search import search_order
from planner.orders.pipeline_problem import Order, OrderObjective, PipelineProblem, StageTable
from planner.orders.sequence_search import search_sequences
from planner.orders.slot_timing import MEMORY_ROUNDING, objective_seconds, peak_activations, slot_times
