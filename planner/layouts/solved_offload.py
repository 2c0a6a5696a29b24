"""How much of its activations a layout keeps in host memory: as little as fits, and no more than hides behind compute.

Hidden copies take no time, while recomputation does. So where nothing else fits, offload comes first: the least share
with which no layer is recomputed in full. Where the largest share that hides is too little for that, as few layers are
recomputed as fit beside it, and of the shares with which they do the least is taken.
"""

import numpy as np

from planner.costs import LargestOffload, LayoutColumns, largest_offload
from planner.costs.memory import OFFLOAD_STEPS, StageBytes
from planner.layouts.layout_problem import LayoutProblem
from planner.layouts.recomputed_layers import Floats, fullest_bytes, solved_recompute
from planner.specs.parallelism import ZERO_BUBBLE

ROUNDING = 1e-6  # of a step of the share


def offload_is_open(problem: LayoutProblem, at: LayoutColumns) -> bool:
    """Whether activations may be offloaded: the job does not say, its framework and device can, and backward is in one
    piece. The rule for what hides is that of prices by rates, and of attention that keeps no scores.
    """
    fixed, knobs = problem.trained.fixed, problem.knobs
    settled = fixed.offload is not None or isinstance(fixed.recompute, dict)
    alone = knobs.offload == "alone" and bool(at.recomputed_parts)
    told = knobs.offload != "none" and knobs.offload_shares == "any"
    able = problem.by_rates and problem.accounting.flash and bool(problem.machine.device.host_gb_per_s)
    return able and told and not settled and not alone and at.schedule not in ZERO_BUBBLE


def with_offload(
    problem: LayoutProblem, at: LayoutColumns, stages: list[StageBytes], share: Floats, recomputes: bool
) -> tuple[Floats, Floats]:
    """The shares of layers recomputed in full and of activations offloaded, (layouts,) each. `share`: of layers,
    without offload; `recomputes`: whether it may be less.
    """
    offload, fragmentation = np.zeros(share.shape), problem.accounting.fragmentation
    tight = share > 0.0 if recomputes else fullest_bytes(stages, share, fragmentation) > problem.allowed
    if problem.knobs.offload == "alone":
        tight = tight & (np.asarray(at.pp) == 1) & (recomputes | (share == 0.0))
    if not tight.any():
        return share, offload
    most = largest_offload(problem.trained.module, at, problem.machine, problem.trained.offloaded_size)
    tight = tight & (most.full > 0.0)
    largest = LargestOffload(*(np.broadcast_to(each, share.shape)[tight] for each in most))
    some, share = [stage.among(tight) for stage in stages], share.copy()
    before = share[tight] if recomputes else None
    base = np.zeros(largest.full.shape) if recomputes else share[tight]
    share[tight], offload[tight] = least_offload(problem, some, largest, base, before)
    return share, offload


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
    needed = np.zeros(share.shape)
    for stage in stages:
        least = stage.least_offload(problem.allowed, problem.accounting.fragmentation, share[stage.layouts])
        needed[stage.layouts] = np.maximum(needed[stage.layouts], least)
    steps = np.ceil(needed * OFFLOAD_STEPS + ROUNDING)
    return np.asarray(np.where(needed > 0.0, steps / OFFLOAD_STEPS, 0.0))
