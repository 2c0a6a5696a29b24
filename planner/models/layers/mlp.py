"""The MLP of a dense layer, applied to each token, its width sharded over the ranks of a tensor-parallel block."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planner.models.autograd.recompute import recompute_along
from planner.models.batch import Batch
from planner.models.layers.linear import column_parallel, row_parallel
from planner.models.sharding import ModuleShard
from planner.specs.layers import Module
from planner.specs.layers.stack import Activation

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
}


class Mlp(nn.Module):
    """A gated (arXiv 2002.05202) or plain MLP, such as SwiGLU or GELU."""

    def __init__(self, spec: Module, width: int, dtype: torch.dtype, shard: ModuleShard) -> None:
        super().__init__()
        bias, self.part = spec.bias in ("all", "all_but_key"), shard.tp_shard(width)
        self.gate = column_parallel(spec.hidden, width, bias, dtype, self.part) if spec.gated else None
        self.up = column_parallel(spec.hidden, width, bias, dtype, self.part)
        self.activation = ACTIVATIONS[spec.mlp_activation]
        self.down = row_parallel(width, spec.hidden, bias, dtype, self.part)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Map x `(local_tokens, hidden)` to the same shape."""
        tensor = batch.tensor_parallel_for(self.part)
        x = recompute_along(tensor.all_gather, x)
        activated = self.activation
        wide = activated(self.up(x)) if self.gate is None else activated(self.gate(x)) * self.up(x)
        return self.down(wide, tensor)  # type: ignore[no-any-return]
