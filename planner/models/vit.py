"""A vision tower: flattened patches in, merged and projected to the width of a reader, summed squared error out.

Positions are the places of patches in their image, in one dimension: the work of two, without needing its sides.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.held import WHOLE_MODULE, Held
from planner.models.layer import norm
from planner.models.linear import linear
from planner.models.network import Network
from planner.specs.model import Vit


class VitNetwork(Network):
    def __init__(self, spec: Vit, dtype: torch.dtype, held: Held = WHOLE_MODULE) -> None:
        super().__init__(spec, dtype, held)
        self.wide = spec.hidden * spec.merge**2
        if self.first:
            self.patch = linear(patch_width(spec), spec.hidden, False, dtype)
        if not self.last:
            return
        self.norm = norm(spec, dtype)
        self.projector = nn.Sequential(
            linear(self.wide, self.wide, True, dtype),
            nn.GELU(),
            linear(self.wide, spec.out, True, dtype),
        )

    def start(self, batch: Batch) -> Tensor:
        return self.patch(batch.inputs.to(self.patch.weight.dtype))  # type: ignore[no-any-return]

    def tokens(self, x: Tensor) -> Tensor:
        """Each merge x merge patches, which lie side by side in the batch, as one token [t / merge^2, out]."""
        merged = self.norm(x).reshape(x.numel() // self.wide, self.wide)
        return self.projector(merged)  # type: ignore[no-any-return]

    def finish(self, x: Tensor, batch: Batch) -> Tensor:
        tokens = self.tokens(x)
        kept = torch.promote_types(tokens.dtype, torch.float32)
        return F.mse_loss(tokens.to(kept), batch.targets.to(kept), reduction="sum")


def patch_width(spec: Vit) -> int:
    """Numbers in one flattened patch."""
    return spec.channels * spec.frames * spec.patch**2
