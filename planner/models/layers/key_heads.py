"""Keys and values of the query heads that one rank holds, where tensor parallelism shards the query heads."""

from math import gcd

import torch
from torch import Tensor, nn

from planner.models.autograd.deferred_weights import deferrable_linear
from planner.models.layers.linear import column_parallel
from planner.models.sharding import EqualShard
from planner.specs.layers import Module
from planner.specs.layers.head_widths import head_dim, kv_heads


def local_key_heads(heads: int, shared: int, part: EqualShard) -> tuple[int, ...]:
    """Which key heads this rank's query heads read, each for the same number of consecutive query heads.

    A group of query heads that is on several ranks has its key head listed by each of them; where groups end within a
    rank, a key head may be listed several times.
    """
    per_key = gcd(heads // shared, part.size(heads))
    return tuple(head * shared // heads for head in range(*part.span(heads), per_key))


def key_value_projection(
    spec: Module, bias: bool, dtype: torch.dtype, part: EqualShard, width: int | None = None
) -> nn.Linear:
    """The projection of x `(tokens, width)` to this rank's keys, or values, `(tokens, local kv heads * head_dim)`.
    Width None is the module's own.
    """
    shared, width = kv_heads(spec), width or spec.hidden
    if shared % part.count == 0:
        return column_parallel(width, shared * head_dim(spec), bias, dtype, part)
    return ReplicatedKeyHeads(spec, bias, dtype, local_key_heads(spec.heads, shared, part), width)


class ReplicatedKeyHeads(nn.Linear):
    """A replicated projection, of which a rank computes only the heads that it needs."""

    def __init__(self, spec: Module, bias: bool, dtype: torch.dtype, head_indices: tuple[int, ...], read: int) -> None:
        """`read` is the width of x."""
        self.width, self.head_indices = head_dim(spec), head_indices
        super().__init__(read, kv_heads(spec) * self.width, bias=bias, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Map x `(tokens, width)` to `(tokens, local kv heads * head_dim)`."""
        first, last = self.head_indices[0], self.head_indices[-1] + 1
        rows = slice(first * self.width, last * self.width)
        y = deferrable_linear(input, self.weight[rows], None if self.bias is None else self.bias[rows])
        if len(self.head_indices) == last - first:
            return y
        heads = torch.split(y, self.width, dim=1)
        return torch.cat([heads[head - first] for head in self.head_indices], 1)
