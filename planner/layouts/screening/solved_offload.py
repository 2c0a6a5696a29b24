"""How much of its activations a layout keeps in host memory: as little as fits, and no more than hides behind compute.

Hidden copies take no time, while recomputation does. So where nothing else fits, offload comes first: the least share
with which no layer is recomputed in full. Where the largest share that hides is too little for that, as few layers are
recomputed as fit beside it, and of the shares with which they do the least is taken.

Of a framework that offloads whole kinds of activations, and no shares, the kinds are named instead: of all sets of them
whose copies hide, that the host has room for, and with which no layer is recomputed in full, the one that moves least.
Beside layers in full none are: what is left of these is their input, which no kind names.
"""

import numpy as np
from numpy.typing import NDArray

from planner.costs import LargestOffload, LayoutColumns, columns_where, largest_offload, named_bytes
from planner.costs.memory import OFFLOAD_STEPS, StageBytes
from planner.layouts.screening.recomputed_layers import Floats, fullest_bytes, most_of_stages, solved_recompute
from planner.layouts.space.layout_batches import column_batches
from planner.layouts.space.layout_problem import LayoutProblem
from planner.layouts.space.layout_space import LayoutSpace
from planner.specs.layers import module_parts
from planner.specs.parallelism import ZERO_BUBBLE, RecomputedPart, part_code, sets_of_parts

SolvedOffload = tuple[Floats, Floats, Floats]
ROUNDING = 1e-6  # of a step of the share


def offload_is_open(problem: LayoutProblem, at: LayoutColumns) -> bool:
    """Whether activations may be offloaded: the job does not say, its framework and device can, and backward is in one
    piece. The rule for what hides is that of prices by rates, and of attention that keeps no scores.
    """
    fixed, knobs = problem.trained.fixed, problem.knobs
    settled = fixed.offload is not None or isinstance(fixed.recompute, dict)
    alone = knobs.offload == "alone" and bool(at.recomputed_parts)
    told = knobs.offload != "none" and (knobs.offload_shares == "any" or bool(searched_offload(problem)))
    able = problem.by_rates and problem.accounting.flash and bool(problem.machine.device.host_gb_per_s)
    return able and told and not settled and not alone and at.schedule not in ZERO_BUBBLE


def searched_offload(problem: LayoutProblem) -> tuple[RecomputedPart, ...]:
    """The kinds of activations that a search may name, of those that the module has; () where it has shares, and beside
    other modules.
    """
    knobs, trained = problem.knobs, problem.trained
    if knobs.offload_shares != "none" or trained.any_assignment or trained.fixed.offload is not None:
        return ()
    return tuple(part for part in module_parts(trained.module) if part in knobs.offloaded_parts)


def named_parts(problem: LayoutProblem, codes: Floats) -> NDArray[np.bool_]:
    """Which of the kinds that a search may name each layout names, (kinds, layouts)."""
    each = [part_code([part]) for part in searched_offload(problem)]
    return np.asarray(codes.astype(np.int64) & np.array(each)[:, None] > 0)


def tight_layouts(
    problem: LayoutProblem, at: LayoutColumns, stages: list[StageBytes], share: Floats, recomputes: bool
) -> NDArray[np.bool_]:
    """Which layouts do not fit without recomputation, and may offload. `share`, `recomputes`: as `with_offload` has
    them.
    """
    tight = (
        share > 0.0 if recomputes else fullest_bytes(stages, share, problem.accounting.fragmentation) > problem.allowed
    )
    if problem.knobs.offload == "alone":
        tight = tight & (np.asarray(at.pp) == 1) & (recomputes | (share == 0.0))
    return np.asarray(tight)


def host_room(problem: LayoutProblem, at: LayoutColumns) -> Floats:
    """Bytes of the memory of its host that a rank of each layout may use, (layouts,)."""
    staged = max(problem.host_bytes, problem.stage_host_bytes)
    return np.where(np.asarray(at.pp) + 0.0 * at.tp > 1, staged, problem.host_bytes)


def with_offloaded_parts(
    problem: LayoutProblem, at: LayoutColumns, stages: list[StageBytes], share: Floats, recomputes: bool
) -> SolvedOffload:
    """As `with_offload`, by kinds of activations."""
    share, codes, kinds = share.copy(), np.zeros(share.shape), searched_offload(problem)
    tight = tight_layouts(problem, at, stages, share, recomputes)
    if not tight.any():
        return share, codes, codes
    at, trained, sets = columns_where(at, tight), problem.trained, sets_of_parts(kinds)
    hidden = largest_offload(trained.module, at, problem.machine, trained.offloaded_size).hidden
    base = np.zeros(int(tight.sum())) if recomputes else share[tight]
    sizes = [
        np.broadcast_to(each.most, base.shape) for each in named_bytes(trained.module, at, problem.accounting, kinds)
    ]
    able, chosen = np.array(sizes) <= hidden, np.array([[part in some for part in kinds] for some in sets])
    for stage in (each.among(tight) for each in stages):
        own = base[stage.layouts]
        moved = chosen @ stage.offloadable_parts(own)
        enough = moved >= stage.beyond(problem.allowed, problem.accounting.fragmentation, own)
        able[:, stage.layouts] &= enough & (moved <= host_room(problem, at)[stage.layouts])
    least = np.argmin(np.where(able, sizes, np.inf), axis=0)
    found = able.any(axis=0)
    codes[tight] = np.where(found, np.array([*map(part_code, sets)])[least], 0)
    share[tight] = np.where(found, base, share[tight])
    return share, (codes > 0).astype(np.float64), codes


def fixed_offload_hides(problem: LayoutProblem, found: LayoutSpace) -> NDArray[np.bool_]:
    """Whether the copies of what the job says is offloaded hide in each layout of a space, (layouts,)."""
    fixed, trained = problem.trained.fixed, problem.trained
    hides = np.ones(len(found["tp"]), dtype=np.bool_)
    for places, at in column_batches(trained, found) if fixed.offload else ():
        most = largest_offload(trained.module, at, problem.machine, trained.offloaded_size)
        if fixed.offloaded_parts:
            *_, named = named_bytes(trained.module, at, problem.accounting, fixed.offloaded_parts)
            hides[places] = named.most <= most.hidden
        else:
            hides[places] = fixed.offload_share <= within(at.full_recompute, most)
    return hides


def with_offload(
    problem: LayoutProblem, at: LayoutColumns, stages: list[StageBytes], share: Floats, recomputes: bool
) -> SolvedOffload:
    """The shares of layers recomputed in full and of activations offloaded, and the kinds that these are a share of,
    (layouts,) each. `share`: of layers, without offload; `recomputes`: whether it may be less.
    """
    offload, everything = np.zeros(share.shape), np.zeros(share.shape)
    tight = tight_layouts(problem, at, stages, share, recomputes)
    if not tight.any():
        return share, offload, everything
    most = largest_offload(problem.trained.module, at, problem.machine, problem.trained.offloaded_size)
    tight = tight & (most.full > 0.0)
    largest = LargestOffload(*(np.broadcast_to(each, share.shape)[tight] for each in most))
    some, share = [stage.among(tight) for stage in stages], share.copy()
    before = share[tight] if recomputes else None
    base = np.zeros(largest.full.shape) if recomputes else share[tight]
    share[tight], offload[tight] = least_offload(problem, some, largest, base, before)
    return share, offload, everything


def least_offload(
    problem: LayoutProblem, stages: list[StageBytes], largest: LargestOffload, base: Floats, before: Floats | None
) -> tuple[Floats, Floats]:
    """The shares of layers recomputed in full and of activations offloaded, (layouts,) each, of layouts that do not fit
    without. `base`: the share of layers that is recomputed whatever is
    offloaded; `before`: the share that would be without offload, None where the job says it.
    """
    limit, alone = within(base, largest), share_needed(problem, stages, base)
    if before is None:
        return base, np.minimum(alone, limit)
    share, offload = before, np.zeros(before.shape)
    if problem.knobs.offload == "any":
        whole = "ranges" not in problem.knobs.recompute
        share = solved_recompute(stages, problem.allowed, problem.accounting, whole, largest.partial)
        offload = np.minimum(share_needed(problem, stages, share), within(share, largest))
    hides = alone <= limit
    return np.where(hides, base, share), np.where(hides, alone, offload)


def within(share: Floats, largest: LargestOffload) -> Floats:
    """The largest share to offload where this share of the layers is recomputed in full."""
    return np.asarray(np.where(share == 1.0, largest.full, largest.partial))


def share_needed(problem: LayoutProblem, stages: list[StageBytes], share: Floats) -> Floats:
    """The least share to offload so that every stage fits, a multiple of 1/OFFLOAD_STEPS; above 1 where none does."""
    limits = problem.allowed, problem.accounting.fragmentation
    return in_steps(most_of_stages(stages, lambda stage: stage.least_offload(*limits, share[stage.layouts])))


def in_steps(share: Floats) -> Floats:
    """Shares to offload, each rounded up to a multiple of 1/OFFLOAD_STEPS."""
    return np.where(share > 0.0, np.ceil(share * OFFLOAD_STEPS + ROUNDING) / OFFLOAD_STEPS, 0.0)
