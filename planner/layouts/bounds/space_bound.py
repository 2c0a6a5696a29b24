"""A lower bound on the step of every layout of a space, from parts that no assignment and no order can avoid.

Of each layout the parts are those of costs/step/least_step.py. Of unequal sequences the slowest replica works no less
than the mean of all, in mean micro-batches; its first and its last may be the shortest alone. A layout is out of the
space if its fullest stage exceeds what a rank may hold, however many layers it recomputes and whatever it offloads that
hides; of unequal sequences, with one micro-batch in flight, of the mean tokens or of the longest sequence alone. Of the
orders that its ranks may have, the one with the least bound counts. Where parts of layers are searched, the bound of a
layout without recomputation is one of the same layout with any parts and layers. Where moments of the optimizer may be
in host memory, it is also one with any share of them there (layouts/bounds/optimizer_offload_bound.py). The bound over
the space is the least over all others. It says nothing of layouts that are not in the space, nor of modules priced by
fits.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.costs import LayoutColumns, columns_where
from planner.costs.step import StepItems, least_busy_seconds, least_step_seconds
from planner.layouts.bounds.optimizer_offload_bound import with_least_optimizer_offload
from planner.layouts.screening.layout_screening import Floats, loses_overlap, with_memory
from planner.layouts.screening.searched_parts import least_recompute, searched_sets
from planner.layouts.screening.solved_optimizer_offload import optimizer_offload_is_open
from planner.layouts.screening.unequal_batches import micro_batch_counts
from planner.layouts.space.launchable_layouts import with_ep_overlap
from planner.layouts.space.layout_batches import LayoutIndices, column_batches
from planner.layouts.space.layout_fields import TrainingSetup
from planner.layouts.space.layout_problem import LayoutProblem
from planner.layouts.space.layout_space import LayoutSpace
from planner.layouts.space.rank_orders import OrderChoice, order_choices, orders_of
from planner.specs.base import with_fields
from planner.specs.layers import Module
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


def layout_bounds(problem: LayoutProblem, found: LayoutSpace, below: float = np.inf) -> LayoutBounds:
    """The bounds of every layout of a space; of those whose mean rank alone takes `below` seconds or more, that."""
    count, orders, found = len(found["tp"]), order_choices(problem, found), with_ep_overlap(problem, found)
    bounds = LayoutBounds(np.full(count, np.inf), np.zeros(count))
    offloads = optimizer_offload_is_open(problem)
    # Stages of one node share its host: of a pipeline no rank has more than all of them.
    shared = replace(problem, stage_host_bytes=problem.host_bytes * problem.machine.network.per_node)
    on_device = replace(shared, knobs=with_fields(problem.knobs, optimizer_offload=())) if offloads else shared
    for places, at in column_batches(problem.trained, found):
        at = replace(at, dispatch=problem.dispatches)  # each part at the kind that is quickest for it
        least, bounds.bytes_needed[places] = with_memory(on_device, at, held_micro_batch(problem.trained, at))
        if isinstance(problem.trained.fixed.recompute, dict):  # stages may differ in what they recompute
            at, least = (replace(some, full_recompute=0.0, recomputed_parts=frozenset()) for some in (at, least))
        fits = bounds.bytes_needed[places] <= problem.allowed
        bounds.seconds[places] = least_in_any_order(problem, least, orders_of(orders, places, fits), below)
        tight = ~fits | (least.full_recompute > at.full_recompute)
        if offloads and tight.any():
            with_optimizer_offload(problem, columns_where(at, tight), bounds, places[tight], orders, below)
    return bounds


def with_optimizer_offload(
    problem: LayoutProblem,
    at: LayoutColumns,
    bounds: LayoutBounds,
    places: LayoutIndices,
    orders: list[OrderChoice],
    below: float,
) -> None:
    """Lowers the bounds of layouts that do not fit without recomputation to those with moments of the optimizer in host
    memory, where these fit.
    """
    least, beyond = with_least_optimizer_offload(problem, at, held_micro_batch(problem.trained, at))
    fits, before = np.isfinite(beyond), bounds.bytes_needed[places] <= problem.allowed
    seconds = least_in_any_order(problem, least, orders_of(orders, places, fits), below) + beyond
    lower = np.minimum(seconds, np.where(before, bounds.seconds[places], np.inf))
    bounds.seconds[places] = np.where(fits, lower, bounds.seconds[places])
    bounds.bytes_needed[places] = np.where(fits & ~before, problem.allowed, bounds.bytes_needed[places])


def least_in_any_order(problem: LayoutProblem, at: LayoutColumns, orders: list[OrderChoice], below: float) -> Floats:
    """Lower bounds of a step, (layouts,), in the order of ranks in which each is least, with any parts recomputed; of
    those whose mean rank takes `below` seconds or more, that of the mean rank that recomputes nothing.
    """
    seconds, module = np.full(np.shape(at.tp), np.inf), module_in_bounds(problem.trained)
    for choice in orders:
        if not choice.tried.any():
            continue
        some = replace(columns_where(at, choice.tried), rank_order=choice.rank_order)
        if np.isfinite(below):
            bare = replace(some, full_recompute=0.0, recomputed_parts=frozenset(), optimizer_offload=0.0, alike={})
            own = np.asarray(least_busy_seconds(module, bare, problem.machine)) + np.zeros(choice.tried.sum())
        else:
            own = np.full(choice.tried.sum(), -np.inf)
        quick = own < below
        if quick.any():
            own[quick] = least_with_any_parts(problem, columns_where(some, quick))
        seconds[choice.tried] = np.minimum(seconds[choice.tried], own)
    return seconds


def least_with_any_parts(problem: LayoutProblem, at: LayoutColumns) -> Floats:
    """Lower bounds of a step, (layouts,), with any parts recomputed. Where a framework does not overlap ep beside
    layers in full and experts that are recomputed, with other parts, or without the overlap.
    """
    alone = loses_overlap(problem, at)
    if not alone.any():
        return least_seconds_of(problem, with_any_parts(problem, at))
    seconds, bare, knobs = np.full(alone.shape, np.inf), columns_where(at, alone), problem.knobs
    if not alone.all():
        seconds[~alone] = least_with_any_parts(problem, columns_where(at, ~alone))
    without = least_seconds_of(problem, with_any_parts(problem, replace(bare, overlap=bare.overlap - {"ep"})))
    kinds, parts = (
        tuple(each for each in some if each not in ("full", "moe"))
        for some in (knobs.recompute, knobs.recomputed_parts)
    )
    others = with_any_parts(replace(problem, knobs=with_fields(knobs, recompute=kinds, recomputed_parts=parts)), bare)
    enough = np.asarray(others.full_recompute) < bare.full_recompute
    if enough.any():
        without[enough] = np.minimum(without[enough], least_seconds_of(problem, columns_where(others, enough)))
    seconds[alone] = without
    return seconds


def with_any_parts(problem: LayoutProblem, at: LayoutColumns) -> LayoutColumns:
    """The layouts; where parts are searched, with layers in full that take no longer than any parts that free as
    much.
    """
    if not searched_sets(problem) or at.recomputed_parts or at.schedule in ZERO_BUBBLE:
        return at
    return replace(at, full_recompute=least_recompute(problem, at, np.asarray(at.full_recompute)))


def held_micro_batch(trained: TrainingSetup, at: LayoutColumns) -> LayoutColumns:
    """The layouts with a micro-batch that every plan has to hold: of equal sequences its own; of others one of the
    longest alone, or of the mean tokens if these are more.
    """
    if trained.equal_lengths:
        return at
    longest = float(max(trained.sizes))
    share = trained.mean_sequences / (at.pipelines * micro_batch_counts(trained, at))
    several = share * at.seq > longest
    micro_batch = np.where(several, share, 1.0)
    return replace(
        at, seq=np.where(several, at.seq, longest), micro_batch=micro_batch, batch=at.pipelines * micro_batch
    )


def module_in_bounds(trained: TrainingSetup) -> Module:
    """The module; of unequal sequences without attention within windows, of which mean ones have more than they."""
    module = trained.module
    windowed = any(module.window_of(layer) is not None for layer in range(module.layers))
    return with_fields(module, window=1) if windowed and not trained.equal_lengths else module


def least_seconds_of(problem: LayoutProblem, at: LayoutColumns) -> Floats:
    """Lower bounds of a step, (layouts,)."""
    module = module_in_bounds(problem.trained)
    return np.asarray(least_step_seconds(module, step_items(problem.trained, at), problem.machine))


def step_items(trained: TrainingSetup, at: LayoutColumns) -> StepItems:
    """The micro-batches of a step: of unequal ones the first of a pipeline, and the last, may be the shortest sequence
    alone.
    """
    if trained.equal_lengths:
        return StepItems(at, at, at)
    shortest = replace(at, seq=float(min(trained.sizes)), micro_batch=1.0)
    return StepItems(at, shortest, shortest)
