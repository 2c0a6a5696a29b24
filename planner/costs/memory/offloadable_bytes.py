"""Bytes of a pipeline rank's activations that can go to host memory, however many of its layers are recomputed in full.

Each chunk of layers keeps those of its first layer and its last, as there is no compute left that would overlap their
copies. Layers are recomputed chunk by chunk from the first on (layouts/recomputed_layers.py), so that the last layer of
a chunk is recomputed last: with n of l layers in v chunks recomputed, e(n) = min(n, v) + max(0, n − (l − v)) of the 2·v
ends are. With A bytes kept by a layer, a by a recomputed one, and a share r of what is between the ends offloaded, a
rank keeps

    (1 − r)·(l·A − n·(A − a)) + r·(2·v·A − e(n)·(A − a))

which falls in n in three straight pieces.
"""

import numpy as np

from planner.costs.layout_columns import Number

ALL_BUT_NOTHING = 1e-9  # least share that stays, least bytes between ends: what is divided by is not 0


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
