"""What no layout on so many ranks can beat, by its work and its states alone: found in a millisecond.

All passes over all sequences take the least ranks' seconds on one rank, in one micro-batch: shards, stages, replicas
and more micro-batches repeat the constants of kernels, fill a device less, and add exchanges. On n ranks, no step takes
less than an n-th of them and what the slowest of n adds; ranks of several kinds do as much of them as each is quick.
States of trained parameters are on some rank each, and of its optimizer's moments none where these may be in host
memory.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

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
    slower = (1.0 + machine.jitter(trained.ranks)) / (1.0 + machine.jitter(few))
    return float(ranks_seconds(problem, at) / trained.ranks * slower + constant)


def mixed_work_bound(problems: Mapping[str, LayoutProblem], counts: Mapping[str, int]) -> float:
    """Seconds that a step on so many ranks of each kind, or of some kinds, takes at least; infinite where not even its
    states fit. `problems`: by kind, each as if all ranks were of it.

    A rank of kind k does 1/w_k of the passes in a second, for w_k ranks' seconds of all of them: n_k of each do them in
    1/Σ n_k/w_k seconds, whoever does which part.
    """
    constant = max(problem.machine.timing.step_ms for problem in problems.values()) * MS
    each = [kinds for size in range(1, len(problems) + 1) for kinds in combinations(problems, size)]
    rates = [work_rate({kind: problems[kind] for kind in kinds}, counts) for kinds in each]
    return constant + 1.0 / max(rates) if max(rates) > 0.0 else np.inf


def work_rate(problems: Mapping[str, LayoutProblem], counts: Mapping[str, int]) -> float:
    """Steps in a second of ranks of these kinds at most; 0 where states do not fit, infinite where not rates price."""
    ranks = sum(counts[kind] for kind in problems)
    if not all(problem.by_rates for problem in problems.values()):
        return np.inf
    rate, room, needed = 0.0, 0.0, 0.0
    for kind, problem in problems.items():
        trained, layout = problem.trained, least_layout(problem.trained.fixed)
        at = columns_for(layout, replace(trained, ranks=len(layout.ranks)))
        passes = ranks_seconds(problem, at) / (1.0 + float(problem.machine.jitter(len(layout.ranks))))
        rate += counts[kind] / passes / (1.0 + float(problem.machine.jitter(ranks)))
        room += counts[kind] * max(0.0, problem.allowed)
        needed = max(needed, least_state_bytes(problem, at))
    return rate if needed <= room else 0.0


def ranks_seconds(problem: LayoutProblem, at: LayoutColumns) -> float:
    """Ranks' seconds of all passes at least, on as few ranks as a layout has."""
    at = replace(at, micro_batch=at.batch, dispatch=problem.dispatches)
    constant = problem.machine.timing.step_ms * MS
    path = float(least_path_seconds(module_in_bounds(problem.trained), at, problem.machine))
    return (path - constant) * float(at.ranks)


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
