"""A vision encoder: from flattened patches to tokens that are merged and projected to the width of another module, or
to their summed squared error.

A position is the index of a patch in its image, in one dimension, with that of a class token, which is 0; or a place in
two, row and column. Learned positions are as good in any order of patches, since each has a row of its own.
"""

import torch
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.layers.linear import replicated_linear
from planner.models.layers.norms import build_norm
from planner.models.layers.projector import MergingProjector
from planner.models.networks.encoder_network import EncoderNetwork
from planner.models.sharding import FULL_MODULE, ModuleShard
from planner.specs.layers import Vit


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
        self.projector = MergingProjector(spec, dtype, shard) if last else None

    def embed(self, batch: Batch) -> Tensor:
        """Patch embeddings `(local_tokens, hidden)`, with the class token in place of the first of each image."""
        tensor = batch.tensor_parallel
        x = batch.with_features(self.patch(tensor.local_rows(batch.inputs).to(self.patch.weight.dtype)))
        positions = tensor.local_rows(batch.positions)
        if self.class_token is not None:
            x = torch.where((positions == 0)[:, None], self.class_token, x)
        if self.position is not None:
            x = x + self.position(positions)
        return x if self.input_norm is None else self.input_norm(x)

    def output_tokens(self, x: Tensor, batch: Batch) -> Tensor:
        """Merged and projected tokens `(local_tokens / merge^2, out)` of x `(local_tokens, hidden)`. A class token has
        a row, which no reader takes.
        """
        assert self.projector is not None
        return self.projector(x if self.norm is None else self.norm(x), batch)  # type: ignore[no-any-return]


def patch_width(spec: Vit) -> int:
    """How many numbers a flattened patch has."""
    return spec.channels * spec.frames * spec.patch**2
