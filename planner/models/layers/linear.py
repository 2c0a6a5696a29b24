"""The linear layers of the models, replicated or sharded over the ranks of a tensor-parallel block (arXiv 1909.08053),
and their norms: RMSNorm (arXiv 1910.07467) or LayerNorm (arXiv 1607.06450).

The first matrix of a block is sharded by columns, the last by rows: each rank computes a part of what is between, and
only the sums at the end are over all ranks.
"""

import torch
from torch import Tensor, nn

from planner.models.autograd.deferred_weights import deferrable_linear
from planner.models.sharding import EqualShard, ParameterSplit
from planner.models.tensor_parallel import NO_TENSOR_PARALLEL, TensorParallel
from planner.specs.layers import Module


def replicated_linear(width: int, out: int, bias: bool, dtype: torch.dtype) -> nn.Linear:
    """A replicated layer y = x W^T (+ b), x `(tokens, width)`, y `(tokens, out)`."""
    return DeferrableLinear(width, out, bias=bias, dtype=dtype)


def column_parallel(
    width: int, out: int, bias: bool, dtype: torch.dtype, part: EqualShard, sections: tuple[int, ...] = ()
) -> nn.Linear:
    """A column-parallel layer: this rank's `(tokens, out / tp)` of y, or of its sections, from x `(tokens, width)`."""
    layer = ShardedLinear(width, part.size(out), bias=bias, dtype=dtype)
    layer.splits = {
        name: (ParameterSplit(0, part, "tp", sections),) for name in (("weight", "bias") if bias else ("weight",))
    }
    return layer


def row_parallel(width: int, out: int, bias: bool, dtype: torch.dtype, part: EqualShard) -> "RowParallelLinear":
    """A row-parallel layer: from this rank's shard `(tokens, width / tp)` of x to rows `(local_tokens, out)` of y."""
    layer = RowParallelLinear(part.size(width), out, bias=bias, dtype=dtype)
    layer.splits = {"weight": (ParameterSplit(1, part, "tp"),)}
    return layer


class DeferrableLinear(nn.Linear):
    """A linear layer whose weight gradient may be deferred."""

    def forward(self, input: Tensor) -> Tensor:
        """Map `(tokens, width)` to `(tokens, out)`."""
        return deferrable_linear(input, self.weight, self.bias)


class ShardedLinear(DeferrableLinear):
    """A linear layer that holds one shard of a matrix."""

    splits: dict[str, tuple[ParameterSplit, ...]]


class RowParallelLinear(ShardedLinear):
    """Each rank's product is a summand of y. The bias is replicated, and added once, to the sums."""

    def forward(self, input: Tensor, tensor: TensorParallel = NO_TENSOR_PARALLEL) -> Tensor:
        """Map `(tokens, width / tp)` to `(local_tokens, out)`."""
        if tensor is NO_TENSOR_PARALLEL:
            return super().forward(input)
        y = tensor.reduce_scatter(deferrable_linear(input, self.weight))
        return y if self.bias is None else y + self.bias


def build_norm(spec: Module, dtype: torch.dtype, width: int | None = None) -> nn.Module:
    """A norm of vectors `(..., width)`; None: the module's hidden width."""
    kind = nn.RMSNorm if spec.norm == "rms" else nn.LayerNorm
    return kind(width or spec.hidden, eps=spec.norm_eps, dtype=dtype)
