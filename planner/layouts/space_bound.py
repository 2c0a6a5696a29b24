"""A lower bound on the step of every layout of a space, from parts that no assignment and no order can avoid.

Of each layout the parts are those of costs/step/least_step.py. Of unequal sequences the slowest replica works no less
than the mean of all, in mean micro-batches; the first micro-batch of each has one of the longest, since a plan gives
them out first; and the longest alone passes through all stages. A layout is out of the space if its fullest stage
exceeds what a rank may hold, however many layers it recomputes and whatever it offloads that hides; of unequal
sequences, with one micro-batch in flight, of the mean tokens or of the longest sequence alone. Of the orders that its
ranks may have, the one with the least bound counts. Where parts of layers are searched, the bound of a layout without
recomputation is one of the same layout with any parts and layers. The bound over the space is the least over all
others. It says nothing of layouts that are not in the space, nor of modules priced by fits.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.costs import LayoutColumns, columns_where
from planner.costs.step import StepItems, least_step_seconds
from planner.layouts.equivalent_window import with_equivalent_window
from planner.layouts.layout_batches import column_batches
from planner.layouts.layout_fields import TrainingSetup
from planner.layouts.layout_problem import LayoutProblem
from planner.layouts.layout_screening import Floats, with_memory
from planner.layouts.layout_space import LayoutSpace
from planner.layouts.rank_orders import order_choices, orders_of
from planner.layouts.searched_parts import least_recompute, searched_sets
from planner.layouts.unequal_batches import micro_batch_counts
from planner.specs.parallelism import ZERO_BUBBLE


class LayoutBounds(NamedTuple):
    """Lower bounds of every layout of a space, (layouts,) each."""

    seconds: Floats  # of a step, in any order of ranks where it may fit
    bytes_needed: Floats  # on the fullest rank


class SpaceBound(NamedTuple):
    """The least seconds of any layout of a space that may fit, and how many there are."""

    seconds: float
    layouts: int
    excluded: int  # of these, do not fit into memory


def space_bound(problem: LayoutProblem, bounds: LayoutBounds) -> SpaceBound:
    """The bound over a space from those of its layouts; infinite seconds where nothing fits."""
    fits = bounds.bytes_needed <= problem.allowed
    return SpaceBound(float(bounds.seconds[fits].min(initial=np.inf)), len(fits), int((~fits).sum()))


def layout_bounds(problem: LayoutProblem, found: LayoutSpace) -> LayoutBounds:
    """The bounds of every layout of a space."""
    count, orders = len(found["tp"]), order_choices(problem, found)
    seconds, needed = np.full(count, np.inf), np.zeros(count)
    parts_are_open = bool(searched_sets(problem))
    for places, at in column_batches(problem.trained, found):
        at = replace(at, dispatch=problem.dispatches)  # each part at the kind that is quickest for it
        at, needed[places] = with_least_memory(problem, at)
        relaxed = parts_are_open and not at.recomputed_parts and at.schedule not in ZERO_BUBBLE
        if isinstance(problem.trained.fixed.recompute, dict):  # stages may differ in what they recompute
            at = replace(at, full_recompute=0.0, recomputed_parts=frozenset())
        for choice in orders_of(orders, places, needed[places] <= problem.allowed):
            own, some = places[choice.tried], columns_where(at, choice.tried)
            if len(own):
                some = replace(some, rank_order=choice.rank_order)
                if relaxed:
                    solved = np.asarray(some.full_recompute)
                    some = replace(some, full_recompute=least_recompute(problem, some, solved))
                least = least_seconds_of(problem, some)
                seconds[own] = np.minimum(seconds[own], least)
    return LayoutBounds(seconds, needed)


def with_least_memory(problem: LayoutProblem, at: LayoutColumns) -> tuple[LayoutColumns, Floats]:
    """The layouts with as few layers recomputed as may fit, and at least so many bytes on the fullest rank. What they
    offload takes no time.
    """
    trained = problem.trained
    if trained.equal_lengths:
        return with_memory(problem, at, at)
    longest = replace(at, seq=float(max(trained.sizes)), micro_batch=1.0, batch=at.pipelines)
    share = trained.mean_sequences / (at.pipelines * micro_batch_counts(trained, at))
    mean = replace(at, batch=at.pipelines * share, micro_batch=share)
    solved, needed = with_memory(problem, at, longest)
    others, taken = with_memory(problem, at, mean)
    full = np.maximum(solved.full_recompute, others.full_recompute)
    return replace(at, full_recompute=full), np.maximum(needed, taken)


def least_seconds_of(problem: LayoutProblem, at: LayoutColumns) -> Floats:
    """Lower bounds of a step, (layouts,)."""
    trained, machine = problem.trained, problem.machine
    if trained.equal_lengths:
        return np.asarray(least_step_seconds(trained.module, StepItems(at, at, at), machine))
    module = with_equivalent_window(trained)
    shortest = replace(at, seq=float(min(trained.sizes)), micro_batch=1.0)
    mean = least_step_seconds(module, StepItems(at, first_of_replica(trained, at), shortest), machine)
    longest = replace(at, seq=float(max(trained.sizes)), batch=at.pipelines, micro_batch=1.0)
    alone = least_step_seconds(trained.module, StepItems(longest, longest, shortest), machine)
    return np.asarray(np.maximum(mean, alone))


def first_of_replica(trained: TrainingSetup, at: LayoutColumns) -> LayoutColumns:
    """The shortest that the longest sequence of a replica's first micro-batch may be, alone: as many are given out
    first, longest first, as there are replicas.
    """
    rising = np.sort(np.array(trained.sizes, dtype=float))
    replicas = np.minimum(np.asarray(at.pipelines), len(rising)).astype(int)
    return replace(at, seq=rising[len(rising) - replicas], micro_batch=1.0)
