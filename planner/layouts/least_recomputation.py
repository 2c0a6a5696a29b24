"""The least that layers recompute so that their pipeline stage fits, whichever parts each of them recomputes.

What a stage keeps too much is a share δ of its activations. A layer that recomputes a set of parts frees a share φ of
its own for c seconds. Of layers with any sets, so many of each, the mean frees at least δ, and takes no less than the
lower hull of all points (φ, c) at δ, which begins at nothing and ends at layers in full. So that it holds for unequal
micro-batches, δ is of one that has to be held, and c of the mean one: a pass with what it recomputes takes at least as
long on that as others do in the mean (costs/step/least_step.py). What backward holds of a layer is left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.costs import LayoutColumns
from planner.costs.memory import candidate_stages, stages_bytes
from planner.layouts.held_micro_batches import kept_share
from planner.layouts.layout_problem import LayoutProblem
from planner.layouts.layout_screening import Floats, recompute_is_open
from planner.layouts.rank_orders import Mask
from planner.layouts.recomputed_layers import of_stage
from planner.layouts.searched_parts import (
    Excess,
    memory_excesses,
    offloaded_most,
    priced_sets,
    searched_sets,
    taken_columns,
)
from planner.specs.layers import kind_counts
from planner.specs.parallelism import Recompute

LEAST_FREED = 1e-9  # a share


class Recomputed(NamedTuple):
    """Seconds that layers recompute at least, over those of their forwards, (layouts,) each."""

    first: Floats  # of the first stage
    mean: Floats  # of all layers
    least: Floats  # of any stage

    def among(self, chosen: Mask) -> "Recomputed":
        """The recomputation of the chosen layouts alone."""
        return Recomputed(*(each[chosen] for each in self))


class HeldMemory(NamedTuple):
    """What the stages of pipelines hold at some time, whatever a backward itself needs then."""

    held: LayoutColumns  # with one micro-batch, of which each stage holds a share
    excesses: list[Excess]  # of activations, by stage, (layouts,) each
    fits: Mask  # with all of each layer recomputed, if that is open


def least_recomputed(
    problem: LayoutProblem,
    at: LayoutColumns,
    mean: LayoutColumns,
    held: Sequence[LayoutColumns],
    beside: HeldMemory | None,
) -> Recomputed:
    """The least recomputation of layouts that recompute nothing as they stand. `mean`: with mean micro-batches, `held`:
    with those that memory has to hold at a backward, `beside`: what stages of pipelines hold at any time.
    """
    none = np.zeros(np.shape(at.tp))
    if not recompute_is_open(problem, at) or at.recomputed_parts:
        return Recomputed(none, none, none)
    stages = [
        [*each]
        for each in zip(
            *(memory_excesses(problem, one, offloaded_most(problem, one), True) for one in held), strict=True
        )
    ]
    held = (*held, beside.held) if beside else held
    for each, excess in zip(stages, beside.excesses if beside else (), strict=bool(beside)):
        each.append(excess)
    shares = [least_of_stage(problem, mean, held, each) for each in stages]
    whole = sum(
        each * stage[0].layers * np.isfinite(stage[0].share) for each, stage in zip(shares, stages, strict=True)
    )
    pp = np.asarray(at.pp)
    every = [np.where(np.isfinite(stage[0].share), each, np.inf) for each, stage in zip(shares, stages, strict=True)]
    chunk = problem.trained.module.layers / (pp * np.asarray(at.vpp))
    alike = np.floor(chunk) / np.ceil(chunk)  # layers of the smallest stage over those of the largest
    least = np.where(pp <= len(stages), alike * np.min(every, axis=0), 0.0)  # of longer ones some are not looked at
    return Recomputed(np.where(pp > 1, shares[0], shares[-1]), np.asarray(whole / problem.trained.module.layers), least)


def held_memory(problem: LayoutProblem, at: LayoutColumns, held: LayoutColumns) -> HeldMemory | None:
    """The stages of these layouts that keep each micro-batch for a share of its time through all (kept_share); None
    where none has a pipeline, or the job limits tokens instead.
    """
    if np.max(at.pp) <= 1 or problem.limits.tokens_per_rank is not None:
        return None
    module, open_, fits = problem.trained.module, recompute_is_open(problem, at), np.ones(np.size(at.tp), np.bool_)
    stages, excesses = stages_bytes(module, held, problem.accounting, True), list[Excess]()
    ranges = isinstance(problem.trained.fixed.recompute, dict)  # of which a stage may have any
    for number, stage in zip(candidate_stages(module, at), stages, strict=True):
        time = np.where(np.asarray(at.pp) > 1, kept_share(module, at, number), 0.0)[stage.layouts]
        room, kept = stage.room(problem.allowed, problem.accounting.fragmentation), np.maximum(stage.kept, 1.0)
        full = 1.0 if open_ or ranges else of_stage(stage, at.full_recompute)
        longest = np.where(of_stage(stage, at.vpp) > 1, 1.0, time)  # layers that recompute may be kept all the time
        moved = longest * of_stage(stage, offloaded_most(problem, held)) * stage.offloadable(0.0)
        leanest = np.maximum(time * stage.kept - longest * full * (stage.kept - stage.least_kept), 0.0)
        fits[stage.layouts] &= stage.states + leanest - moved <= room
        beyond = (stage.states + time * stage.kept - moved - room) / (kept * np.maximum(longest, LEAST_FREED))
        one = Excess(np.full(fits.shape, -np.inf), *np.ones((4, fits.size)))
        layers, between = np.maximum(1.0, stage.layers), stage.offloadable(0.0) / kept
        for column, own in zip(one, (beyond, kept, stage.backward, layers, between), strict=True):
            column[stage.layouts] = own
        excesses.append(one)
    return HeldMemory(held, excesses, fits)


def least_of_stage(
    problem: LayoutProblem, mean: LayoutColumns, held: Sequence[LayoutColumns], stages: Sequence[Excess]
) -> Floats:
    """What layers of a stage recompute at least, over their forwards, (layouts,). `stages`: what it keeps too much with
    each of these micro-batches.
    """
    share = np.zeros(stages[0].share.shape)
    (places,) = np.nonzero(np.max([each.share for each in stages], axis=0) > 0.0)
    if not len(places):
        return share
    sets: tuple[Recompute, ...] = ("selective", *searched_sets(problem), "full")
    taken = np.stack([each.seconds for each in priced_sets(problem, sets, taken_columns(mean, places))])
    several = len(kind_counts(problem.trained.module)) > 1
    for each, stage in zip(held, stages, strict=True):
        priced = priced_sets(problem, sets, taken_columns(each, places))
        freed = [one.freed.most if several else one.freed.share for one in priced]
        points = np.broadcast_to(np.array(np.broadcast_arrays(*freed)), taken.shape)
        seconds = on_lower_hull(points, taken, stage.share[places])
        share[places] = np.maximum(share[places], np.minimum(1.0, seconds / taken[-1]))
    return share


def on_lower_hull(freed: Floats, taken: Floats, needed: Floats) -> Floats:
    """The lower hull of the origin and of points (freed, taken), (points, layouts) each, at `needed`; at its end where
    that is beyond it.
    """
    share, seconds = np.zeros(needed.shape), np.zeros(needed.shape)
    found, open_ = np.zeros(needed.shape), needed > 0.0
    while open_.any():
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = np.where(freed > share + LEAST_FREED, (taken - seconds) / (freed - share), np.inf)
        chosen = np.argmin(slopes, axis=0)[None]
        slope, farther = (np.take_along_axis(each, chosen, 0)[0] for each in (slopes, freed))
        end = ~np.isfinite(slope)
        reached = open_ & ~end & (farther >= needed)
        found = np.where(reached, seconds + slope * (needed - share), np.where(open_ & end, seconds, found))
        open_ &= ~reached & ~end
        seconds = np.where(open_, seconds + slope * (farther - share), seconds)
        share = np.where(open_, farther, share)
    return found
