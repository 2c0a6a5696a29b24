"""How much of the optimizer's moments a layout keeps in host memory: as little as fits.

Processors update them there, once a step: with a quarter of the moments a step was measured to take 1.9 times as long,
with all 4.2 times (profiles/software/nemo.yaml). Layers recomputed in full make room as well, and take their time in
every micro-batch. What a stage holds falls in straight lines with both, so that each least is a division, and the
quickest of three pairs is no slower than all in between: as few moments as fit beside all the recomputation there may
be; as few as the optimizer's step asks for, with as few layers as then fit; as few layers as fit beside all moments.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs import LayoutColumns, columns_where, host_update_seconds, recompute_seconds_by
from planner.costs.memory import StageBytes, layers_on_stage
from planner.layouts.screening.recomputed_layers import (
    Floats,
    fullest_bytes,
    most_of_stages,
    of_stage,
    solved_recompute,
)
from planner.layouts.screening.solved_offload import in_steps
from planner.layouts.space.layout_problem import LayoutProblem
from planner.specs.parallelism import recompute_of


class FittingShares(NamedTuple):
    """Shares with which layouts fit, (layouts,) each."""

    layers: Floats  # recomputed in full
    activations: Floats  # offloaded
    moments: Floats  # offloaded; above 1 where all are too little


def optimizer_offload_is_open(problem: LayoutProblem) -> bool:
    """Whether moments may be offloaded: the job does not say, its framework can, and an update in host memory has a
    price.
    """
    told = bool(problem.knobs.optimizer_offload) and problem.trained.fixed.optimizer_offload is None
    return told and problem.by_rates and problem.machine.timing.host_update_ns is not None


def offloads_moments(problem: LayoutProblem, at: LayoutColumns) -> NDArray[np.bool_]:
    """Whether the framework can offload each layout's moments beside its ZeRO stage."""
    beside = np.isin(at.zero, problem.knobs.optimizer_offload)
    return np.asarray(beside | (np.asarray(at.data_ranks) == 1))


def with_optimizer_offload(
    problem: LayoutProblem, bare: LayoutColumns, solved: LayoutColumns, stages: list[StageBytes], needed: Floats
) -> tuple[LayoutColumns, Floats]:
    """The layouts, those that do not fit without recomputation with the moments in host memory that make them quickest,
    and the bytes on the fullest rank. `bare`: before recomputation and offload were solved for, `solved`: with both;
    `needed`: bytes of these.
    """
    tight = offloads_moments(problem, bare) & (
        (needed > problem.allowed) | (solved.full_recompute > bare.full_recompute)
    )
    if not tight.any():
        return solved, needed
    tried = [*shares_that_fit(problem, bare, solved, [stage.among(tight) for stage in stages], tight)]
    some = columns_where(bare, tight)
    update, again = host_update_seconds(problem.trained.module, some, problem.machine), recompute_seconds(problem, some)
    taken = [np.where(each.moments <= 1.0, update * each.moments + again * each.layers, np.inf) for each in tried]
    quickest = np.argmin(taken, axis=0)[None]  # where nothing fits the first, which holds least
    layers, activations, moments = (
        np.take_along_axis(np.stack(each), quickest, 0)[0] for each in zip(*tried, strict=True)
    )
    found = [np.array(np.broadcast_to(each, tight.shape)) for each in (solved.full_recompute, solved.offload, 0.0)]
    for column, own in zip(found, (layers, activations, np.minimum(1.0, moments)), strict=True):
        column[tight] = own
    bytes_needed = fullest_bytes(stages, found[0], problem.accounting.fragmentation, *found[1:])
    return replace(solved, full_recompute=found[0], offload=found[1], optimizer_offload=found[2]), bytes_needed


def shares_that_fit(
    problem: LayoutProblem,
    bare: LayoutColumns,
    solved: LayoutColumns,
    stages: list[StageBytes],
    some: NDArray[np.bool_],
) -> Iterator[FittingShares]:
    """The three pairs of shares that may be quickest, of some of the layouts: `stages` are theirs."""
    each = (bare.full_recompute, solved.full_recompute, solved.offload)
    fewest, most, offload = (np.broadcast_to(column, some.shape)[some] for column in each)
    yield FittingShares(most, offload, least_share(problem, stages, most, offload))
    partial = np.where((most == 1.0) & (fewest < 1.0), 0.0, offload)  # beside fewer layers in full less may hide
    whole, fragmentation = "ranges" not in problem.knobs.recompute, problem.accounting.fragmentation

    def asked(stage: StageBytes) -> Floats:
        return (stage.update - stage.room(problem.allowed, fragmentation)) / np.maximum(stage.moments, 1e-9)

    in_step = most_of_stages(stages, asked)
    for moved in (np.minimum(1.0, in_step), np.ones(most.shape)):
        rest = [stage.with_moments_offloaded(moved[stage.layouts]) for stage in stages]
        layers = np.clip(solved_recompute(rest, problem.allowed, problem.accounting, whole, partial), fewest, most)
        activations = np.where(layers == most, offload, partial)
        yield FittingShares(layers, activations, least_share(problem, stages, layers, activations))


def least_share(problem: LayoutProblem, stages: list[StageBytes], recomputed: Floats, offload: Floats) -> Floats:
    """The least share of moments to offload so that every stage fits, (layouts,), a multiple of 1/OFFLOAD_STEPS beside
    these shares of layers recomputed in full and of activations offloaded; above 1 where none is enough.
    """

    def least(stage: StageBytes) -> Floats:
        beside = recomputed[stage.layouts], of_stage(stage, offload)
        return stage.least_optimizer_offload(problem.allowed, problem.accounting.fragmentation, *beside)

    return in_steps(most_of_stages(stages, least))


def recompute_seconds(problem: LayoutProblem, at: LayoutColumns) -> Floats:
    """Seconds by which a step is longer that recomputes all of its layers in full, in place of what they recompute
    otherwise: of all micro-batches of a stage, and of the bubble.
    """
    module, own = problem.trained.module, recompute_of(at.recomputed_parts)
    parts, full = recompute_seconds_by(module, (own, "full"), at, problem.machine)
    passes = at.micro_batches + (at.pp - 1.0) / at.vpp
    return np.asarray(passes * layers_on_stage(module, at, 0) * np.maximum(0.0, full - parts))
