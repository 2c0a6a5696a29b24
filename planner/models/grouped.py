"""One product of many matrices: rows that lie together belong to one matrix.

Two back ends: one call of `grouped_mm` (float32 and bfloat16 on CPUs, bfloat16 on CUDA), and a loop over the matrices
for everything else.
"""

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

ALIGNED_BYTES = 16  # what rows of both operands and of the product must be multiples of, for grouped_mm
GROUPED = {"cpu": (torch.float32, torch.bfloat16), "cuda": (torch.bfloat16,)}
FIRST_CAPABILITY = (9, 0)  # of CUDA devices that it is made for


@dataclass(frozen=True, slots=True)
class Grouped:
    """A `Product` (models/deferred.py): y [m, N] of x [m, K] and matrices [E, N, K], the first sizes[0] rows times
    matrices[0]^T, and so on.
    """

    sizes: Tensor  # [E] integers whose sum is m; any may be zero

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return grouped(x, weight, self.sizes)

    def of_input(self, gradient: Tensor, weight: Tensor) -> Tensor:
        return grouped(gradient, weight.transpose(1, 2), self.sizes)

    def of_weight(self, gradient: Tensor, x: Tensor) -> Tensor:
        if suits(x, gradient.shape[1]):
            return one_call(gradient.t(), x, self.sizes)
        sizes = self.sizes.tolist()
        pairs = zip(torch.split(gradient, sizes), torch.split(x, sizes), strict=True)
        return torch.stack([of_rows.t() @ rows for of_rows, rows in pairs])


def grouped(x: Tensor, matrices: Tensor, sizes: Tensor) -> Tensor:
    """Rows of x [m, K] times the transposed matrix of each, of matrices [E, N, K]."""
    if suits(x, matrices.shape[1]):
        return one_call(x, matrices.transpose(1, 2), sizes)
    return one_by_one(x, matrices, sizes)


def one_call(left: Tensor, right: Tensor, sizes: Tensor) -> Tensor:
    """[m, K] and [E, K, N] to [m, N]; or [N, m] and [m, K] to [E, N, K]."""
    y: Tensor = F.grouped_mm(left, right, offs=sizes.cumsum(0).to(torch.int32))
    return y


def one_by_one(x: Tensor, matrices: Tensor, sizes: Tensor) -> Tensor:
    """Also of matrices without rows, so that each has a gradient. The sizes are read on the host."""
    parts = torch.split(x, sizes.tolist())
    return torch.cat([part @ matrix.t() for part, matrix in zip(parts, matrices.unbind(), strict=True)])


def suits(x: Tensor, other: int) -> bool:
    """Whether one call can multiply x by matrices that are so wide on their other side."""
    aligned = all(width * x.element_size() % ALIGNED_BYTES == 0 for width in (x.shape[1], other))
    return aligned and x.dtype in GROUPED.get(x.device.type, ()) and has_grouped(x.device)


@cache
def has_grouped(device: torch.device) -> bool:
    """Whether this torch has it, for this device."""
    if not hasattr(F, "grouped_mm"):
        return False
    return device.type == "cpu" or torch.cuda.get_device_capability(device) >= FIRST_CAPABILITY
