"""Keys and values of the query heads that one rank has, where tensor parallelism parts the query heads."""

from math import gcd

import torch
from torch import Tensor, nn

from planner.models.deferred import affine
from planner.models.held import Part
from planner.models.linear import column
from planner.specs.layers import Module
from planner.specs.layers.heads import head_dim, kv_heads


def key_heads(heads: int, shared: int, part: Part) -> tuple[int, ...]:
    """Which of the shared heads of keys a rank's query heads read, each for as many consecutive ones as any other.

    A group of query heads that lies on several ranks has its key named by each of them; where groups end within a rank,
    a key may be named several times there.
    """
    alike = gcd(heads // shared, part.size(heads))
    return tuple(head * shared // heads for head in range(*part.span(heads), alike))


def key_projection(spec: Module, bias: bool, dtype: torch.dtype, part: Part, width: int | None = None) -> nn.Linear:
    """x [t, width] to this rank's keys, or values, [t, its key heads x head_dim]; None: as wide as the module."""
    shared, width = kv_heads(spec), width or spec.hidden
    if shared % part.of == 0:
        return column(width, shared * head_dim(spec), bias, dtype, part)
    return SomeHeads(spec, bias, dtype, key_heads(spec.heads, shared, part), width)


class SomeHeads(nn.Linear):
    """A matrix that every rank has whole, of which it uses what its heads need."""

    def __init__(self, spec: Module, bias: bool, dtype: torch.dtype, wanted: tuple[int, ...], read: int) -> None:
        """`read`: the width of x."""
        self.width, self.wanted = head_dim(spec), wanted
        super().__init__(read, kv_heads(spec) * self.width, bias=bias, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        first, last = self.wanted[0], self.wanted[-1] + 1
        rows = slice(first * self.width, last * self.width)
        y = affine(input, self.weight[rows], None if self.bias is None else self.bias[rows])
        if len(self.wanted) == last - first:
            return y
        heads = torch.split(y, self.width, dim=1)
        return torch.cat([heads[head - first] for head in self.wanted], 1)
