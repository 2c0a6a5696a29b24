"""What no layout on so many ranks can beat, by its work and its states alone: found in a millisecond.

All passes over all sequences take the least ranks' seconds on one rank, in one micro-batch: shards, stages, replicas
and more micro-batches repeat the constants of kernels, fill a device less, and add exchanges. On n ranks, no step takes
less than an n-th of them and what the slowest of n adds. States of trained parameters are on some rank each, and of its
optimizer's moments none where these may be in host memory.
"""

from dataclasses import replace

import numpy as np

from planner.costs import LayoutColumns
from planner.costs.memory import moment_width
from planner.costs.step import least_path_seconds
from planner.layouts.bounds.space_bound import layout_bounds, module_in_bounds, space_bound
from planner.layouts.bounds.split_bound import least_divided
from planner.layouts.screening.solved_optimizer_offload import optimizer_offload_is_open
from planner.layouts.space.joint_problem import least_layout
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_fields import columns_for
from planner.layouts.space.layout_problem import LayoutProblem
from planner.layouts.space.rank_counts import rank_counts
from planner.specs.trained_parameters import trained_parameters
from planner.units import MS


def work_bound(problem: LayoutProblem) -> float:
    """Seconds that a step on the problem's ranks takes at least; infinite where not even its states fit, and 0 where it
    is priced by more than rates.
    """
    trained, machine = problem.trained, problem.machine
    if not problem.by_rates:
        return 0.0
    layout = least_layout(trained.fixed)
    few, constant = len(layout.ranks), machine.timing.step_ms * MS
    at = columns_for(layout, replace(trained, ranks=few))
    if few > trained.ranks or least_state_bytes(problem, at) > problem.allowed * trained.ranks:
        return np.inf
    at = replace(at, micro_batch=at.batch, dispatch=problem.dispatches)
    passes = float(least_path_seconds(module_in_bounds(trained), at, machine)) - constant
    slower = (1.0 + machine.jitter(trained.ranks)) / (1.0 + machine.jitter(few))
    return float(passes * few / trained.ranks * slower + constant)


def may_be_below(problem: LayoutProblem, seconds: float) -> bool:
    """Whether any layout of the space, with layers divided in any way, may take less than so many seconds, on the
    problem's ranks or on fewer that divide better: what a search that found it would be bounded by.
    """
    counts = rank_counts(problem.trained.ranks, problem.trained.fixed)
    each = (replace(problem, trained=replace(problem.trained, ranks=count)) for count in counts)
    return any(layout_may_be_below(own, seconds) for own in each if work_bound(own) < seconds)


def layout_may_be_below(problem: LayoutProblem, seconds: float) -> bool:
    """The same on all ranks of a problem."""
    found = layouts_of(problem, problem.trained.fixed)
    even = space_bound(problem, layout_bounds(problem, found, seconds)).seconds
    return even < seconds or least_divided(problem, found, seconds).seconds < seconds


def least_state_bytes(problem: LayoutProblem, at: LayoutColumns) -> float:
    """Bytes of states on all ranks together at least; none where the job limits tokens instead."""
    if problem.limits.tokens_per_rank is not None:
        return 0.0
    moved = moment_width(at, problem.accounting) if optimizer_offload_is_open(problem) else 0.0
    return (problem.accounting.optimizer_bytes - moved) * trained_parameters(problem.trained.module)
