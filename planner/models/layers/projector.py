"""The projector of a vision tower: from merged tokens of its last layer to the width of the module that reads them."""

import torch
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.layers.linear import column_parallel, replicated_linear, row_parallel
from planner.models.layers.mlp import ACTIVATIONS
from planner.models.sharding import ModuleShard
from planner.specs.layers import Vit

NORM_EPS = 1e-5  # of InternVL's layer norm


class MergingProjector(nn.Module):
    """Each merge x merge tokens, which are consecutive in the batch, as one vector; then two linears, of which tp
    shards what is between, or one, which each rank applies to its own rows.
    """

    def __init__(self, spec: Vit, dtype: torch.dtype, shard: ModuleShard) -> None:
        super().__init__()
        shape, self.hidden, self.width = spec.projector, spec.hidden, spec.merged_width
        self.norm = nn.LayerNorm(self.width, eps=NORM_EPS, dtype=dtype) if shape.norm else None
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
