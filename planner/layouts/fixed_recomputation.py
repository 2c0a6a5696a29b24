"""What pipelines recompute at least where a job says which ranges of layers recompute what: of those in full, as many
as each stage has of them. Passes are priced as so many layers, each as the mean of all.
"""

import numpy as np

from planner.costs import LayoutColumns
from planner.layouts.layout_fields import TrainingSetup
from planner.layouts.least_recomputation import Recomputed
from planner.plan.mesh.even_stages import even_stages
from planner.specs.base import Layers


def fixed_recomputation(trained: TrainingSetup, at: LayoutColumns) -> Recomputed:
    """The recomputation of pipelines of even stages, (layouts,) each; nothing without a pipeline, as layouts say it
    there.
    """
    found = np.zeros((3, *np.shape(at.tp)))
    pp, vpp = (np.broadcast_to(each, found.shape[1:]).astype(int) for each in (at.pp, at.vpp))
    for stages, chunks in {*zip(pp.tolist(), vpp.tolist(), strict=True)}:
        if stages > 1:
            found[:, (pp == stages) & (vpp == chunks)] = np.array(recomputed_shares(trained, stages, chunks))[:, None]
    return Recomputed(*found)


def recomputed_shares(trained: TrainingSetup, pp: int, vpp: int) -> tuple[float, float, float]:
    """Of the first rank's layers, of all, and of the first rank's again as many as every rank has at least: spread over
    a rank's chunks (costs/step/least_step.py) they are no more than each chunk has.
    """
    assert isinstance(trained.fixed.recompute, dict), "only then layers are named"
    full = {layer for text, how in trained.fixed.recompute.items() if how == "full" for layer in Layers.from_file(text)}
    chunks = even_stages(trained.module.layers, pp * vpp)
    counts, first = [len(full & {*chunk}) for chunk in chunks], sum(map(len, chunks[::pp]))
    ranks = [sum(counts[rank::pp]) for rank in range(pp)]
    least = min(*ranks, vpp * (min(counts) + 1) - 1)
    return ranks[0] / first, sum(counts) / trained.module.layers, least / first
