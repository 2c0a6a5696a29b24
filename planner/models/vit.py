"""A vision encoder: from flattened patches to tokens that are merged and projected to the width of another module, or
to their summed squared error.

A position is the index of a patch in its image, in one dimension: the work is that of two, without knowing the sides.
"""

import torch
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.encoder import EncoderNetwork
from planner.models.held import WHOLE_MODULE, Held
from planner.models.linear import column, linear, row
from planner.models.norms import norm
from planner.specs.layers import Vit


class VitNetwork(EncoderNetwork):
    """A vision transformer with its patch embedding and projector."""

    def __init__(self, spec: Vit, dtype: torch.dtype, shard: Held = WHOLE_MODULE) -> None:
        super().__init__(spec, dtype, shard)
        self.wide = spec.hidden * spec.merge**2
        if self.first:
            self.patch = linear(patch_width(spec), spec.hidden, False, dtype)
        if not self.last:
            return
        self.norm = norm(spec, dtype)
        self.part = shard.part(self.wide)
        self.projector = nn.Sequential(
            column(self.wide, self.wide, True, dtype, self.part),
            nn.GELU(),
            row(self.wide, spec.out, True, dtype, self.part),
        )

    def start(self, batch: Batch) -> Tensor:
        """Patch embeddings `(local_tokens, hidden)`."""
        return batch.fed(self.patch(batch.tensor.mine(batch.inputs).to(self.patch.weight.dtype)))

    def tokens(self, x: Tensor, batch: Batch) -> Tensor:
        """Each merge x merge patches, which are consecutive in the batch, as one token: x `(local_tokens, hidden)` to
        `(local_tokens / merge^2, out)`.
        """
        tensor = batch.among(self.part)
        x = tensor.gather(self.norm(x))
        first, middle, last = self.projector
        inner = middle(first(x.reshape(x.numel() // self.wide, self.wide)))
        return last(inner, tensor)  # type: ignore[no-any-return]


def patch_width(spec: Vit) -> int:
    """How many numbers a flattened patch has."""
    return spec.channels * spec.frames * spec.patch**2
