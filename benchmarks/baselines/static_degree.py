"""One static degree for all batches, as DeepSpeed-Ulysses and Megatron-LM are set up by hand (FlexSP's baselines).

The degree must hold the longest sequence that may ever come. A job that lets sequences fill its widest group has no
other choice than the degree of that group, the widest power of two. Sequences are packed in the order they arrive, each
into the fullest group that has room (best fit), and groups into micro-batches as they were opened.
"""

from benchmarks.baselines.best_fit import best_fit_bins
from benchmarks.baselines.groups import homogeneous, powers_of_two
from planner.costs.packing_problem import PackingProblem
from planner.packing.packed_groups import Packing


def static_degree(problem: PackingProblem) -> Packing | None:
    widest = max(powers_of_two(problem), default=None)
    if widest is None or max(problem.sizes.values()) > problem.shapes[widest].room:
        return None
    return homogeneous(problem, widest, best_fit_bins(problem, sorted(problem.sizes), problem.shapes[widest].room))
