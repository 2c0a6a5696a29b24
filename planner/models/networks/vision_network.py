"""A vision encoder: from flattened patches to tokens that a projector merges and maps to the width of another module,
or to their summed squared error.

A position is the index of a patch in its image, in one dimension, with that of a class token, which is 0; or a place in
two, row and column. Learned positions are as good in any order of patches, since each has a row of its own.
"""

from collections.abc import Collection
from math import isqrt

import torch
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.layers.linear import build_norm, column_parallel, replicated_linear, row_parallel
from planner.models.layers.mlp import ACTIVATIONS
from planner.models.networks.network import EncoderNetwork
from planner.models.sharding import FULL_MODULE, ModuleShard
from planner.specs.base import with_fields
from planner.specs.layers import Vit
from planner.specs.layers.vit import Projector

NORM_EPS = 1e-5  # of InternVL's layer norm


class VitNetwork(EncoderNetwork):
    """A vision transformer with its patch embedding and projector."""

    def __init__(self, spec: Vit, dtype: torch.dtype, shard: ModuleShard = FULL_MODULE) -> None:
        super().__init__(spec, dtype, shard)
        width, first, last = spec.hidden, self.has_first_layer, self.has_last_layer
        if first:
            self.patch = replicated_linear(patch_width(spec), width, spec.patch_bias, dtype)
        self.class_token = nn.Parameter(torch.empty(width, dtype=dtype)) if first and spec.class_token else None
        self.position = nn.Embedding(spec.max_positions, width, dtype=dtype) if first and spec.max_positions else None
        self.input_norm = build_norm(spec, dtype) if first and spec.input_norm else None
        self.norm = build_norm(spec, dtype) if last and spec.final_norm else None
        self.table_rows = spec.place_table
        self.place_table = nn.Embedding(spec.place_table, width, dtype=dtype) if first and spec.place_table else None
        self.projector = MergingProjector(spec, spec.projector, NORM_EPS, dtype, shard) if last else None
        deep = with_fields(spec.projector, norm=True)
        self.deep_projectors = nn.ModuleList(
            MergingProjector(spec, deep, spec.norm_eps, dtype, shard) for _ in spec.deep_layers
        )
        self.deep: list[Tensor] = []  # outputs of these within a forward

    def embed(self, batch: Batch) -> Tensor:
        """Patch embeddings `(local_tokens, hidden)`, with the class token in place of the first of each image."""
        tensor = batch.tensor_parallel
        x = batch.with_features(self.patch(tensor.local_rows(batch.inputs).to(self.patch.weight.dtype)))
        positions = tensor.local_rows(batch.positions)
        if self.class_token is not None:
            x = torch.where((positions == 0)[:, None], self.class_token, x)
        if self.position is not None:
            x = x + self.position(positions)
        if self.place_table is not None:
            assert batch.places is not None and batch.extents is not None, "batches of images have them"
            rows, shares = table_corners(
                tensor.local_rows(batch.places), tensor.local_rows(batch.extents), self.table_rows
            )
            x = x + (self.place_table(rows) * shares.to(x.dtype)[:, :, None]).sum(1)
        return x if self.input_norm is None else self.input_norm(x)

    def pauses(self, batch: Batch) -> Collection[int]:
        return self.spec.feature_depths

    def after_layer(self, layer: int, x: Tensor, batch: Batch) -> Tensor:
        """The output of a layer as it is, which is read by a projector too."""
        self.deep.append(self.deep_projectors[self.spec.feature_depths.index(layer)](x, batch))
        return x

    def output_tokens(self, x: Tensor, batch: Batch) -> Tensor:
        """Merged and projected tokens `(local_tokens / merge^2, depths x out)` of x `(local_tokens, hidden)`."""
        assert self.projector is not None
        deep, self.deep = self.deep, []
        y: Tensor = self.projector(x if self.norm is None else self.norm(x), batch)
        return torch.cat([y, *deep], 1) if deep else y


def table_corners(places: Tensor, extents: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Four rows `(tokens, 4)` of a square table of so many, and the share of each in the position of patches at these
    rows and columns `(tokens, 2)` of images of these extents `(tokens, 2)`: the corners of table and image coincide,
    and between them it is interpolated linearly.
    """
    side = isqrt(rows)
    at = places.double() * (side - 1) / (extents - 1).clamp(min=1)
    low = at.long()
    high, share = (low + 1).clamp(max=side - 1), at - low
    corners = [low[:, :1] * side, high[:, :1] * side]
    index = torch.cat([row + column[:, 1:] for row in corners for column in (low, high)], 1)
    shares = [each[:, :1] * other[:, 1:] for each in (1 - share, share) for other in (1 - share, share)]
    return index, torch.cat(shares, 1)


def patch_width(spec: Vit) -> int:
    """How many numbers a flattened patch has."""
    return spec.channels * spec.frames * spec.patch**2


class MergingProjector(nn.Module):
    """Each merge x merge tokens, which are consecutive in the batch, as one vector; then two linears, of which tp
    shards what is between, or one, which each rank applies to its own rows.
    """

    def __init__(self, spec: Vit, shape: Projector, eps: float, dtype: torch.dtype, shard: ModuleShard) -> None:
        """`eps` is of its norm."""
        super().__init__()
        self.hidden, self.width = spec.hidden, spec.merged_width
        self.norm = nn.LayerNorm(self.width, eps=eps, dtype=dtype) if shape.norm else None
        self.linear = replicated_linear(self.width, spec.out, shape.bias, dtype) if shape.linears == 1 else None
        if self.linear is not None:
            return
        inner = spec.projector_width
        self.part, self.activation = shard.tp_shard(inner), ACTIVATIONS[shape.activation]
        self.up = column_parallel(self.width, inner, shape.bias, dtype, self.part)
        self.down = row_parallel(inner, spec.out, shape.bias, dtype, self.part)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Map x `(local_tokens, hidden)` to `(local_tokens / merge^2, out)`."""
        x = x if self.norm is None else self.norm(self.merged(x))
        if self.linear is not None:
            return self.linear(self.merged(x))  # type: ignore[no-any-return]
        tensor = batch.tensor_parallel_for(self.part)
        x = self.merged(tensor.all_gather(x.reshape(x.numel() // self.hidden, self.hidden)))
        return self.down(self.activation(self.up(x)), tensor)  # type: ignore[no-any-return]

    def merged(self, x: Tensor) -> Tensor:
        """Consecutive rows of x `(tokens, hidden)` joined to `(tokens / merge^2, merge^2 * hidden)`."""
        return x.reshape(x.numel() // self.width, self.width)
