"""What every layer is given about token positions: rotary angles, or a bias per head and distance."""

import torch
from torch import Tensor

from planner.models.batch import Batch
from planner.models.kernels.relative_positions import bias_by_distance
from planner.models.kernels.rotary_positions import (
    RotaryTable,
    patch_table,
    rotary_dim,
    rotary_table,
    section_axes,
    sectioned_table,
)
from planner.specs.layers import Module

PositionEncoding = RotaryTable | Tensor  # rotary: two (tokens, 1, rotary_dim / 2); relative: (heads, 2 * longest - 1)


def position_encoding(spec: Module, batch: Batch, table: Tensor | None, dtype: torch.dtype) -> PositionEncoding | None:
    """The position encoding of a batch, if the module has one. `table` `(buckets, heads)` holds relative positions."""
    if table is not None:
        longest = max(1, *batch.cu_seqlens.diff().tolist(), 0)
        return bias_by_distance(table, longest, spec.causal)
    if spec.position_axes > 1:
        assert batch.places is not None, "batches of documents have them"
        if spec.rotary_sections:
            axes = section_axes(spec.rotary_sections, spec.interleaves_sections)
            return sectioned_table(batch.places, axes, dtype, spec.rotary_base, spec.rotary_scaling)
        return patch_table(batch.places, rotary_dim(spec), dtype, spec.rotary_base)
    if spec.rotates:
        return rotary_table(batch.positions, rotary_dim(spec), dtype, spec.rotary_base, spec.rotary_scaling)
    return None


def encoding_tensors(encoding: PositionEncoding | None) -> tuple[Tensor, ...]:
    """The tensors of a position encoding, with the shapes of `position_encoding`, which all layers share."""
    return encoding if isinstance(encoding, tuple) else () if encoding is None else (encoding,)
