"""The matrices of the zoo: whole, or parted over the ranks of a tensor-parallel block (arXiv 1909.08053).

Into a block of matrices the first is parted by columns, out of it the last by rows: each rank works on a part of what
lies between, and only the sums at the end are of all ranks.
"""

import torch
from torch import Tensor, nn

from planner.models.deferred import affine
from planner.models.held import Part, Split
from planner.models.tensor import ALONE, Tensors


def linear(width: int, out: int, bias: bool, dtype: torch.dtype) -> nn.Linear:
    """y = x W^T (+ b), x [t, width], y [t, out]."""
    return Matrix(width, out, bias=bias, dtype=dtype)


def column(
    width: int, out: int, bias: bool, dtype: torch.dtype, part: Part, sections: tuple[int, ...] = ()
) -> nn.Linear:
    """This rank's part of y [t, out], or of each of its sections; x [t, width] is of all its block's tokens."""
    made = Parted(width, part.size(out), bias=bias, dtype=dtype)
    made.splits = {name: (Split(0, part, "tp", sections),) for name in (("weight", "bias") if bias else ("weight",))}
    return made


def row(width: int, out: int, bias: bool, dtype: torch.dtype, part: Part) -> "Row":
    """From this rank's part of x [t, width] to its rows of y [s, out]."""
    made = Row(part.size(width), out, bias=bias, dtype=dtype)
    made.splits = {"weight": (Split(1, part, "tp"),)}
    return made


class Matrix(nn.Linear):
    """The gradient of its weight may come after all others."""

    def forward(self, input: Tensor) -> Tensor:
        return affine(input, self.weight, self.bias)


class Parted(Matrix):
    """One part of a matrix."""

    splits: dict[str, tuple[Split, ...]]


class Row(Parted):
    """Each rank's product is a summand of y. The bias is whole on every rank, and added once, to the sums."""

    def forward(self, input: Tensor, tensor: Tensors = ALONE) -> Tensor:
        if tensor is ALONE:
            return super().forward(input)
        y = tensor.scatter(affine(input, self.weight))
        return y if self.bias is None else y + self.bias
