"""The fused attention kernels of torch with their log-sum-exp, which hold no scores in memory (arXiv 2307.08691).

They see all keys, or are causal over as many keys as queries. The kernel for CUDA was written from its signature: no
test of ours has run it, where there was no GPU.
"""

from functools import cache, lru_cache
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from planner.models import dense
from planner.models.varlen import suits

ON_CPU = (torch.float64, torch.float32, torch.bfloat16)
FOR_CPU = "_scaled_dot_product_flash_attention_for_cpu"


class Kernel(Protocol):
    """q [n, H, D], k [m, Hkv, D] and v [m, Hkv, Dv], n and m above 0."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        """[n, H, Dv], and the log-sum-exp of scores [n, H]."""

    def backward(
        self, of_out: Tensor, qkv: tuple[Tensor, Tensor, Tensor], seen: tuple[Tensor, Tensor], causal: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of q, k and v. `seen`: output and log-sum-exp over all keys, of which these may be a part."""


def kernel_for(q: Tensor, width: int) -> Kernel | None:
    """What this torch has for such queries, and values of this width; None: nothing."""
    if suits(q, width):
        return OnGpu() if hasattr(torch.ops.aten, "_flash_attention_backward") else None
    if q.device.type == "cpu" and q.dtype in ON_CPU and hasattr(torch.ops.aten, FOR_CPU):
        return OnCpu(knows_groups())
    return None


class OnCpu:
    """Over [1, heads, tokens, width]. Where the operator knows no heads that share keys, these are repeated."""

    def __init__(self, grouped: bool = True) -> None:
        self.grouped = grouped

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        operator = getattr(torch.ops.aten, FOR_CPU)
        k, v = self.repeated(q, k, v)
        out, lse = operator(*map(headed, widened(q, k, v)), 0.0, causal, scale=q.shape[2] ** -0.5)
        return out[0].transpose(0, 1)[..., : v.shape[2]], lse[0].transpose(0, 1)

    def backward(
        self, of_out: Tensor, qkv: tuple[Tensor, Tensor, Tensor], seen: tuple[Tensor, Tensor], causal: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = qkv
        operator = getattr(torch.ops.aten, f"{FOR_CPU}_backward")
        wide, (out, lse) = widened(q, *self.repeated(q, k, v)), seen
        of_out, out = (headed(widened(x, wide[0])[0]) for x in (of_out, out))
        found = operator(
            of_out, *map(headed, wide), out, lse.transpose(0, 1)[None], 0.0, causal, scale=q.shape[2] ** -0.5
        )
        of_q, of_k, of_v = (x[0].transpose(0, 1) for x in found)
        if not self.grouped:
            of_k, of_v = (torch.unflatten(x, 1, (k.shape[1], -1)).sum(2) for x in (of_k, of_v))
        return of_q[..., : q.shape[2]], of_k[..., : q.shape[2]], of_v[..., : v.shape[2]]

    def repeated(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, for each head of the queries its own."""
        each = q.shape[1] // k.shape[1]
        return (k, v) if self.grouped or each == 1 else (k.repeat_interleave(each, 1), v.repeat_interleave(each, 1))


@cache
def knows_groups() -> bool:
    """Whether the operator for the CPU lets heads share keys: it is torch's own, and no release promises that."""
    q, k = torch.linspace(-1, 1, 16).view(2, 4, 2), torch.linspace(-1, 1, 12).view(3, 2, 2)
    try:
        made, (out, lse) = OnCpu(), dense.forward(q, k, k, None)
        found = *made.forward(q, k, k, False), *made.backward(q, (q, k, k), (out, lse), False)
    except RuntimeError:
        return False
    want = out, lse, *dense.backward(q, (q, k, k), lse, (q * out).sum(-1), None)
    return all(torch.allclose(*each, rtol=1e-4, atol=1e-5) for each in zip(found, want, strict=True))


class OnGpu:
    """Over packed sequences [tokens, heads, width], of which there is one. Nothing is dropped; but the backward wants
    the state of random numbers that the forward gives.
    """

    def __init__(self, operators: Any = torch.ops.aten) -> None:
        self.operators = operators
        self.random: list[Tensor] = []

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        out, lse, *random = self.operators._flash_attention_forward(
            *widened(q, k, v), *ends(q, k), 0.0, causal, False, scale=q.shape[2] ** -0.5
        )
        self.random = random[:2]
        return out[..., : v.shape[2]], lse.transpose(0, 1)

    def backward(
        self, of_out: Tensor, qkv: tuple[Tensor, Tensor, Tensor], seen: tuple[Tensor, Tensor], causal: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = qkv
        wide, (out, lse) = widened(*qkv), seen
        of_out, out = (widened(x, wide[0])[0].contiguous() for x in (of_out, out))
        lse = lse.transpose(0, 1).contiguous()
        of_q, of_k, of_v = self.operators._flash_attention_backward(
            of_out, *wide, out, lse, *ends(q, k), 0.0, causal, *self.random, scale=q.shape[2] ** -0.5
        )
        return of_q[..., : q.shape[2]], of_k[..., : q.shape[2]], of_v[..., : v.shape[2]]


def headed(x: Tensor) -> Tensor:
    """[tokens, heads, width] to [1, heads, tokens, width]."""
    return x.transpose(0, 1)[None]


def widened(*tensors: Tensor) -> list[Tensor]:
    """With zeros behind the narrower: kernels know one width; scores stay as they are, and so do the other columns."""
    width = max(x.shape[2] for x in tensors)
    return [x if x.shape[2] == width else F.pad(x, (0, width - x.shape[2])) for x in tensors]


def ends(q: Tensor, k: Tensor) -> list[Any]:
    """Where the one sequence of queries and that of keys begin and end, and how long they are."""
    return [*(end(len(x), q.device) for x in (q, k)), len(q), len(k)]


@lru_cache(maxsize=1024)
def end(length: int, device: torch.device) -> Tensor:
    """Of one sequence, on the device: the same few lengths come back in every layer."""
    return torch.tensor([0, length], dtype=torch.int32, device=device)
