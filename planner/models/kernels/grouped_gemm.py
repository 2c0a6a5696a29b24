"""Grouped matrix products: consecutive rows belong to one matrix (of one expert).

There are two back ends: one call of `grouped_mm` (float32 and bfloat16 on CPUs, bfloat16 on CUDA), and a loop over the
matrices for everything else.
"""

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

ALIGNED_BYTES = 16  # grouped_mm requires rows of both operands and of the product in multiples of this
GROUPED_DTYPES = {"cpu": (torch.float32, torch.bfloat16), "cuda": (torch.bfloat16,)}
MIN_CAPABILITY = (9, 0)  # lowest CUDA compute capability that it supports


@dataclass(frozen=True, slots=True)
class GroupedProduct:
    """A `DeferrableProduct` (deferred_weights.py): y `(rows, out)` of x `(rows, width)` and matrices `(experts, out,
    width)`. The first sizes[0] rows are multiplied by matrices[0]^T, and so on.
    """

    sizes: Tensor  # (experts) integers whose sum is the number of rows; any may be zero

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """The product y `(rows, out)` of x `(rows, width)` and weight `(experts, out, width)`."""
        return grouped_matmul(x, weight, self.sizes)

    def input_gradient(self, gradient: Tensor, weight: Tensor) -> Tensor:
        """The gradient of x, `(rows, width)`, from that of y, `(rows, out)`."""
        return grouped_matmul(gradient, weight.transpose(1, 2), self.sizes)

    def weight_gradient(self, gradient: Tensor, x: Tensor) -> Tensor:
        """The gradient of the matrices, `(experts, out, width)`."""
        if grouped_mm_supports(x, gradient.shape[1]):
            return grouped_mm(gradient.t(), x, self.sizes)
        sizes = self.sizes.tolist()
        pairs = zip(torch.split(gradient, sizes), torch.split(x, sizes), strict=True)
        return torch.stack([grad_rows.t() @ rows for grad_rows, rows in pairs])


def grouped_matmul(x: Tensor, matrices: Tensor, sizes: Tensor) -> Tensor:
    """Each row of x `(rows, width)` times its transposed matrix, of matrices `(experts, out, width)`: `(rows, out)`."""
    if grouped_mm_supports(x, matrices.shape[1]):
        return grouped_mm(x, matrices.transpose(1, 2), sizes)
    return matmul_one_by_one(x, matrices, sizes)


def grouped_mm(left: Tensor, right: Tensor, sizes: Tensor) -> Tensor:
    """`(rows, K)` and `(experts, K, N)` to `(rows, N)`; or `(N, rows)` and `(rows, K)` to `(experts, N, K)`."""
    y: Tensor = F.grouped_mm(left, right, offs=sizes.cumsum(0).to(torch.int32))
    return y


def matmul_one_by_one(x: Tensor, matrices: Tensor, sizes: Tensor) -> Tensor:
    """A loop over matrices `(experts, out, width)`, including those without rows, so that each has a gradient: x
    `(rows, width)` to `(rows, out)`. The sizes are read on the host, which synchronises.
    """
    parts = torch.split(x, sizes.tolist())
    return torch.cat([part @ matrix.t() for part, matrix in zip(parts, matrices.unbind(), strict=True)])


def grouped_mm_supports(x: Tensor, other: int) -> bool:
    """Whether `grouped_mm` supports x `(rows, width)` and matrices whose other side has `other` columns."""
    aligned = all(width * x.element_size() % ALIGNED_BYTES == 0 for width in (x.shape[1], other))
    return aligned and x.dtype in GROUPED_DTYPES.get(x.device.type, ()) and grouped_mm_available(x.device)


@cache
def grouped_mm_available(device: torch.device) -> bool:
    """Whether the installed torch has `grouped_mm` for this device."""
    if not hasattr(F, "grouped_mm"):
        return False
    return device.type == "cpu" or torch.cuda.get_device_capability(device) >= MIN_CAPABILITY
