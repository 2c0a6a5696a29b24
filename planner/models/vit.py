"""A vision tower: flattened patches in, merged and projected to the width of a reader, summed squared error out.

Positions are the places of patches in their image, in one dimension: the work of two, without needing its sides.
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
    def __init__(self, spec: Vit, dtype: torch.dtype, held: Held = WHOLE_MODULE) -> None:
        super().__init__(spec, dtype, held)
        self.wide = spec.hidden * spec.merge**2
        if self.first:
            self.patch = linear(patch_width(spec), spec.hidden, False, dtype)
        if not self.last:
            return
        self.norm = norm(spec, dtype)
        self.part = held.part(self.wide)
        self.projector = nn.Sequential(
            column(self.wide, self.wide, True, dtype, self.part),
            nn.GELU(),
            row(self.wide, spec.out, True, dtype, self.part),
        )

    def start(self, batch: Batch) -> Tensor:
        return batch.fed(self.patch(batch.tensor.mine(batch.inputs).to(self.patch.weight.dtype)))

    def tokens(self, x: Tensor, batch: Batch) -> Tensor:
        """Each merge x merge patches, which lie side by side in the batch, as one token [s / merge^2, out]."""
        tensor = batch.among(self.part)
        x = tensor.gather(self.norm(x))
        first, middle, last = self.projector
        wide = middle(first(x.reshape(x.numel() // self.wide, self.wide)))
        return last(wide, tensor)  # type: ignore[no-any-return]


def patch_width(spec: Vit) -> int:
    """Numbers in one flattened patch."""
    return spec.channels * spec.frames * spec.patch**2
