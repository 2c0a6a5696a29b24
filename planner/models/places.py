"""What every layer needs to know about the places of tokens: angles, or a number for each head and distance."""

import torch
from torch import Tensor

from planner.models.batch import Batch
from planner.models.relative import by_distance
from planner.models.rotary import Rotary, rotary_dim, rotary_table
from planner.specs.layers import Module

Places = Rotary | Tensor  # of rotary positions, or of relative ones, [H, 2 * longest - 1]


def places_of(spec: Module, batch: Batch, table: Tensor | None, dtype: torch.dtype) -> Places | None:
    """`table` [buckets, H]: of relative positions."""
    if table is not None:
        longest = max(1, *batch.cu_seqlens.diff().tolist(), 0)
        return by_distance(table, longest, spec.causal)
    if spec.positions == "rope":
        return rotary_table(batch.positions, rotary_dim(spec), dtype, spec.rotary_base)
    return None


def tensors(places: Places | None) -> tuple[Tensor, ...]:
    """What all layers share."""
    return places if isinstance(places, tuple) else () if places is None else (places,)
