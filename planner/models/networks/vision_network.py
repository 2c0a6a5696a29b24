"""A vision encoder: from flattened patches to tokens that are merged and projected to the width of another module, or
to their summed squared error.

A position is the index of a patch in its image, in one dimension: the work is that of two, without knowing the sides.
"""

import torch
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.layers.linear import column_parallel, replicated_linear, row_parallel
from planner.models.layers.norms import build_norm
from planner.models.networks.encoder_network import EncoderNetwork
from planner.models.sharding import FULL_MODULE, ModuleShard
from planner.specs.layers import Vit


class VitNetwork(EncoderNetwork):
    """A vision transformer with its patch embedding and projector."""

    def __init__(self, spec: Vit, dtype: torch.dtype, shard: ModuleShard = FULL_MODULE) -> None:
        super().__init__(spec, dtype, shard)
        self.wide = spec.hidden * spec.merge**2
        if self.has_first_layer:
            self.patch = replicated_linear(patch_width(spec), spec.hidden, False, dtype)
        if not self.has_last_layer:
            return
        self.norm = build_norm(spec, dtype)
        self.part = shard.tp_shard(self.wide)
        self.projector = nn.Sequential(
            column_parallel(self.wide, self.wide, True, dtype, self.part),
            nn.GELU(),
            row_parallel(self.wide, spec.out, True, dtype, self.part),
        )

    def embed(self, batch: Batch) -> Tensor:
        """Patch embeddings `(local_tokens, hidden)`."""
        return batch.with_features(
            self.patch(batch.tensor_parallel.local_rows(batch.inputs).to(self.patch.weight.dtype))
        )

    def output_tokens(self, x: Tensor, batch: Batch) -> Tensor:
        """Each merge x merge patches, which are consecutive in the batch, as one token: x `(local_tokens, hidden)` to
        `(local_tokens / merge^2, out)`.
        """
        tensor = batch.tensor_parallel_for(self.part)
        x = tensor.all_gather(self.norm(x))
        first, middle, last = self.projector
        inner = middle(first(x.reshape(x.numel() // self.wide, self.wide)))
        return last(inner, tensor)  # type: ignore[no-any-return]


def patch_width(spec: Vit) -> int:
    """How many numbers a flattened patch has."""
    return spec.channels * spec.frames * spec.patch**2
