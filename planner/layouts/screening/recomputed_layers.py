"""How many layers of each pipeline rank are recomputed in full: as few as fit into memory, solved for by arithmetic.

On one stage the bytes that a micro-batch leaves fall in a straight line with the layers that are recomputed, while what
backward recomputes of one layer is held once. So the least number of layers is a division and a ceiling, for a million
layouts at once. Every pipeline rank recomputes as many, spread over its chunks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.costs.memory import StageBytes
from planner.specs.framework.memory_coefficients import MemoryCoefficients

Floats = NDArray[np.float64]
Number = Any  # a float, or an array (layouts,) of them


def solved_recompute(
    stages: Sequence[StageBytes],
    allowed: float,
    accounting: MemoryCoefficients,
    whole: bool = False,
    offload: Number = 0.0,
) -> Floats:
    """The least share of a stage's layers to recompute in full so that every stage fits, 1 where none does, (layouts,).
    `whole`: all layers or none, where a framework has no ranges of them; `offload`: the share of activations that is
    in host memory. A stage that fits with none may need more than another's, as one layer's backward is held besides.
    """

    def limits(stage: StageBytes) -> tuple[float, float, Number]:
        return allowed, accounting.fragmentation, of_stage(stage, offload)

    share = most_of_stages(stages, lambda stage: stage.least_share(*limits(stage)))
    needed = most_of_stages(stages, lambda stage: ~stage.fits_kept(*limits(stage)))
    return np.where(needed > 0.0, np.ceil(share) if whole else share, 0.0)


def most_of_stages(stages: Sequence[StageBytes], formula: Callable[[StageBytes], Number]) -> Floats:
    """The most of any stage by a formula, at least 0, (layouts,): every layout has a last stage."""
    most = np.zeros(len(stages[-1].layouts))
    for stage in stages:
        most[stage.layouts] = np.maximum(most[stage.layouts], formula(stage))
    return most


def of_stage(stage: StageBytes, each: Number) -> Number:
    """What layouts have, (layouts,) or one for all, of those of a stage."""
    return each[stage.layouts] if np.ndim(each) else each


def fullest_bytes(
    stages: Sequence[StageBytes],
    share: Floats,
    fragmentation: float,
    offload: Number = 0.0,
    optimizer_offload: Number = 0.0,
) -> Floats:
    """The bytes on the fullest of some stages, (layouts,), with these shares of layers recomputed in full, and of
    activations and the optimizer's moments offloaded.
    """

    def total(stage: StageBytes) -> Number:
        recomputed, *moved = (of_stage(stage, each) for each in (share, offload, optimizer_offload))
        return stage.total(recomputed, fragmentation, *moved)

    return most_of_stages(stages, total)


def offloaded_bytes(
    stages: Sequence[StageBytes], share: Floats, offload: Number, optimizer_offload: Number = 0.0
) -> Floats:
    """Bytes in the host's memory of the rank of a stage that has most there, (layouts,), with these shares."""
    if not np.any(offload) and not np.any(optimizer_offload):
        return np.zeros(share.shape)

    def own(stage: StageBytes) -> Number:
        moved, moments = (of_stage(stage, each) for each in (offload, optimizer_offload))
        return moved * stage.offloadable(share[stage.layouts]) + moments * stage.moments

    return most_of_stages(stages, own)
