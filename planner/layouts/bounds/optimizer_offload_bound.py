"""A lower bound of layouts with some of the optimizer's moments in host memory.

With moments there, less has to be recomputed. Let a layout recompute a set of parts, k of its L layers in full, and
offload a share r. What a stage holds falls in straight lines with k and r, and the seconds rise so, M·L·c of
recomputation and H·r of the update. So the least is at an end: the least r, which the optimizer's step needs or all
layers in full leave; or the most that is of use, with as few layers in full as then fit. With r = 0 it is the bound of
the layout without (layouts/bounds/space_bound.py). Whole layers and steps of r, and what recomputation adds to fill and
drain, only raise it. Of unequal sequences r alone counts, the least with which the longest fits.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.costs import LayoutColumns, host_update_seconds
from planner.costs.memory import StageBytes, stages_bytes
from planner.layouts.screening.layout_screening import Floats, recompute_is_open
from planner.layouts.screening.recomputed_layers import of_stage
from planner.layouts.screening.searched_parts import PricedSet, offloaded_most, priced_sets, searched_sets
from planner.layouts.screening.solved_optimizer_offload import offloads_moments
from planner.layouts.space.layout_problem import LayoutProblem
from planner.specs.layers import kind_counts
from planner.specs.parallelism import Recompute, recompute_of


class SetShares(NamedTuple):
    """Shares of moments to offload where all layers recompute a set, (layouts,) each; below 0 where none is needed."""

    nothing_full: Floats  # with no layer in full: of the stage that asks for most
    all_full: Floats  # with all layers in full: of the same stage
    least: Floats  # with all layers in full, in the optimizer's step too: of any stage


def with_least_optimizer_offload(
    problem: LayoutProblem, at: LayoutColumns, held: LayoutColumns
) -> tuple[LayoutColumns, Floats]:
    """The layouts, with the least share of moments that they offload if they offload any; and seconds that their steps
    take at least beyond steps with this share and no recomputation, infinite where all moments are too little. `held`:
    the layouts with a micro-batch that memory has to hold.
    """
    sets, able = tried_sets(problem, at), offloads_moments(problem, at)
    shares = shares_of_sets(problem, at, held, sets)
    least = np.min([each.least for each in shares], axis=0)
    asked = (least > 0.0) | (shares[0].nothing_full > 0.0)
    possible = able & (least <= 1.0) & asked
    least = np.where(possible, np.maximum(0.0, least), 1.0)
    beyond = least_beyond(problem, at, sets, shares, least) if problem.trained.equal_lengths else np.zeros(least.shape)
    return replace(at, optimizer_offload=least), np.where(possible, beyond, np.inf)


def tried_sets(problem: LayoutProblem, at: LayoutColumns) -> tuple[Recompute, ...]:
    """What all layers of a layout may recompute: its own parts, any others where parts are searched, all of a layer."""
    own = recompute_of(at.recomputed_parts)
    others: tuple[Recompute, ...] = ("selective", *searched_sets(problem)) if own == "none" else ()
    return (own, *others, "full") if recompute_is_open(problem, at) else (own,)


def least_beyond(
    problem: LayoutProblem, at: LayoutColumns, sets: tuple[Recompute, ...], shares: Sequence[SetShares], least: Floats
) -> Floats:
    """Seconds of recomputation, and of the update of more moments than the least share, (layouts,): the least over
    sets, and over the least moments that go with each and the most that it can do with.
    """
    module = problem.trained.module
    seconds = [price.seconds for price in priced_sets(problem, sets, at)]
    own, full = seconds[0], np.maximum(seconds[-1], seconds[0])
    passes = at.micro_batches * at.vpp * np.floor(module.layers / (at.pp * at.vpp))
    update = host_update_seconds(module, at, problem.machine)
    beyond: list[Floats] = []
    for each, share in zip(seconds, shares, strict=True):
        part = np.clip(each, own, full)
        for moved in (share.least, np.minimum(1.0, np.maximum(share.least, share.nothing_full))):
            falls = np.maximum(share.nothing_full - share.all_full, 1e-12)
            layers = np.clip((share.nothing_full - moved) / falls, 0.0, 1.0)
            taken = passes * (part - own + (full - part) * layers) + update * (moved - least)
            beyond.append(np.where((share.least <= 1.0) & (moved > 0.0), taken, np.inf))
    return np.asarray(np.maximum(0.0, np.min(beyond, axis=0)))


def shares_of_sets(
    problem: LayoutProblem, at: LayoutColumns, held: LayoutColumns, sets: tuple[Recompute, ...]
) -> list[SetShares]:
    """For each set, the shares of moments to offload."""
    module, offload, open_ = problem.trained.module, offloaded_most(problem, at), recompute_is_open(problem, at)
    found = [SetShares(*np.full((3, np.size(at.tp)), -np.inf)) for _ in sets]
    prices = priced_sets(problem, sets, held)
    for stage in stages_bytes(module, held, problem.accounting):
        room = stage.room(problem.allowed, problem.accounting.fragmentation)
        movable = stage.offloadable(0.0)
        bare = stage.states - of_stage(stage, offload) * movable - room
        moments = np.maximum(stage.moments, 1e-9)
        for number, (price, shares) in enumerate(zip(prices, found, strict=True)):
            kept = stage.kept + stage.backward if number == 0 else least_bytes(problem, stage, held, price)
            passes = bare - of_stage(stage, price.named * (1.0 - (price.freed.share if number else 0.0))) * movable
            leanest = np.minimum(kept, stage.least_kept + stage.full_backward) if open_ else kept
            alone, full = (passes + kept) / moments, (passes + leanest) / moments
            more = alone > shares.nothing_full[stage.layouts]
            shares.nothing_full[stage.layouts[more]] = alone[more]
            shares.all_full[stage.layouts[more]] = full[more]
            least = np.maximum(full, (stage.update - room) / moments)
            shares.least[stage.layouts] = np.maximum(shares.least[stage.layouts], least)
    return found


def least_bytes(problem: LayoutProblem, stage: StageBytes, held: LayoutColumns, price: PricedSet) -> Floats:
    """Bytes that a stage of layouts without recomputation keeps and holds in backward where all layers recompute a set,
    at least those of recomputation in full. Where layers are of several kinds, it may be of the kind of which the set
    frees most.
    """
    several = len(kind_counts(problem.trained.module)) > 1
    freed = price.freed.most if several else price.freed.share
    tokens = of_stage(stage, held.tokens)
    backward = np.maximum(stage.backward, 0.0 if several else tokens * of_stage(stage, price.freed.held))
    kept = np.maximum(stage.least_kept, stage.kept * (1.0 - of_stage(stage, freed)))
    return np.asarray(kept + np.minimum(backward, stage.full_backward))
