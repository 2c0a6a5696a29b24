"""Activations that a pipeline rank keeps at once: of how many micro-batches, and which of them can go to host memory.

Micro-batches in flight with 1F1B: as many as there are stages from this one on. Interleaved: 1 + (pp − 1)/(pp·vpp)
times as many on the first (Korthikanti et al., arXiv 2205.05198, §4.2.3). Zero bubble's H1: pp on every stage, since
weight gradients wait for the bubble; H2: 2·pp − 1 (Qi et al., arXiv 2401.10241, §2).

Each chunk of layers keeps those of its first layer and its last, as there is no compute left that would overlap their
copies. Layers are recomputed chunk by chunk from the first on (layouts/screening/recomputed_layers.py), so that the
last layer of a chunk is recomputed last: with n of l layers in v chunks recomputed, e(n) = min(n, v) + max(0, n − (l −
v)) of the 2·v ends are. With A bytes kept by a layer, a by a recomputed one, and a share r of what is between the ends
offloaded, a rank keeps

    (1 − r)·(l·A − n·(A − a)) + r·(2·v·A − e(n)·(A − a))

which falls in n in three straight pieces.
"""

import numpy as np

from planner.costs.layout_columns import LayoutColumns, Number

ALL_BUT_NOTHING = 1e-9  # least share that stays, least bytes between ends: what is divided by is not 0


def in_flight(at: LayoutColumns, stage: Number) -> Number:
    """Micro-batches in flight over all layers of the stage; a fraction where one counts for some chunks only. Stages
    count from 0.
    """
    return np.minimum(at.micro_batches, most_in_flight(at, stage))


def most_in_flight(at: LayoutColumns, stage: Number) -> Number:
    """Micro-batches in flight with any number of them in a step: of no stage more than of one in front of it."""
    if at.schedule == "gpipe":
        return np.inf + 0.0 * stage
    if at.schedule == "zb_h1":
        return at.pp + 0.0 * stage
    if at.schedule == "zb_h2":
        return 2 * at.pp - 1 + 0.0 * stage
    return np.where(np.asarray(at.vpp) > 1, interleaved_in_flight(at, stage), at.pp - stage)


def interleaved_in_flight(at: LayoutColumns, stage: Number) -> Number:
    """Two chunks of warm-up for each later stage, all of its other chunks for pp micro-batches, and one."""
    return (2 * (at.pp - stage - 1) + (at.vpp - 1) * at.pp + 1) / at.vpp


def offloadable_bytes(kept: Number, least_kept: Number, layers: Number, chunks: Number, recomputed: Number) -> Number:
    """Bytes between the ends of all chunks. `kept`, `least_kept`: of all layers, with none recomputed in full and with
    all of them; `recomputed`: how many are.
    """
    each = np.maximum(1.0, layers)
    if not np.any(recomputed):
        return kept * np.maximum(0.0, 1.0 - 2.0 * chunks / each)
    saved = (kept - least_kept) / each
    ends = 2.0 * chunks * kept / each - saved * recomputed_ends(layers, chunks, recomputed)
    return np.maximum(0.0, kept - saved * recomputed - ends)


def recomputed_ends(layers: Number, chunks: Number, recomputed: Number) -> Number:
    """How many first and last layers of chunks are among those that are recomputed."""
    return np.minimum(recomputed, chunks) + np.maximum(0.0, recomputed - np.maximum(0.0, layers - chunks))


def fewest_recomputed(saved: Number, layers: Number, chunks: Number, offload: Number) -> Number:
    """The fewest layers (not rounded) to recompute so that a rank keeps this much less, in what one layer saves. Chunks
    have two layers or more where there is any offload.
    """
    stays = np.maximum(ALL_BUT_NOTHING, 1.0 - offload)
    before_last = stays * (layers - chunks) + offload * chunks
    between = (saved - offload * chunks) / stays
    last = np.maximum(layers - chunks, saved - offload * (2.0 * chunks - layers))
    return np.where(saved <= chunks, saved, np.where(saved <= before_last, between, last))
