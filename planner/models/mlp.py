"""The MLP of a dense layer, token by token."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.held import Held
from planner.models.linear import linear
from planner.specs.model import Module


class Mlp(nn.Module):
    """SwiGLU (arXiv:2002.05202) when gated, else GELU. x [t, hidden] to the same."""

    def __init__(self, spec: Module, width: int, dtype: torch.dtype, held: Held) -> None:
        super().__init__()
        bias = spec.bias == "all"
        self.gate = linear(spec.hidden, width, bias, dtype) if spec.gated else None
        self.up = linear(spec.hidden, width, bias, dtype)
        self.down = linear(width, spec.hidden, bias, dtype)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        wide = F.gelu(self.up(x)) if self.gate is None else F.silu(self.gate(x)) * self.up(x)
        return self.down(wide)  # type: ignore[no-any-return]
