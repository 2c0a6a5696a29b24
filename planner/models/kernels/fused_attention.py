"""Torch's fused attention kernels with their log-sum-exp, which keep no scores in memory (arXiv 2307.08691).

They attend to all keys, or are causal over as many keys as queries. The CUDA kernel was written from its signature; the
tests here ran it only where there was a GPU.
"""

from functools import cache, lru_cache
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from planner.models.kernels import explicit_attention
from planner.models.kernels.varlen_attention import flash_supports

CPU_DTYPES = (torch.float64, torch.float32, torch.bfloat16)
CPU_OPERATOR = "_scaled_dot_product_flash_attention_for_cpu"


class FusedKernel(Protocol):
    """A kernel over q `(n, heads, head_dim)`, k `(m, kv_heads, head_dim)`, v `(m, kv_heads, value_dim)`; n, m > 0."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        """The output `(n, heads, value_dim)` and the log-sum-exp of scores `(n, heads)`."""

    def backward(
        self, grad_out: Tensor, qkv: tuple[Tensor, Tensor, Tensor], seen: tuple[Tensor, Tensor], causal: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of q, k and v from `grad_out` `(n, heads, value_dim)`. `seen` is the output `(n, heads, value_dim)`
        and the log-sum-exp `(n, heads)` over all keys, of which these may be a part.
        """


def fused_kernel_for(q: Tensor, width: int) -> FusedKernel | None:
    """The installed torch's kernel for queries like q `(n, heads, head_dim)` and values of `width` columns, or None."""
    if flash_supports(q, width):
        return CudaFlashAttention() if hasattr(torch.ops.aten, "_flash_attention_backward") else None
    if q.device.type == "cpu" and q.dtype in CPU_DTYPES and hasattr(torch.ops.aten, CPU_OPERATOR):
        return CpuFlashAttention(cpu_operator_shares_key_heads())
    return None


class CpuFlashAttention:
    """Torch's CPU flash kernel over `(1, heads, tokens, width)`. Where it does not support heads that share keys, keys
    and values are repeated.
    """

    def __init__(self, grouped: bool = True) -> None:
        self.shares_key_heads = grouped

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        """Output and log-sum-exp, in the shapes of `FusedKernel.forward`."""
        operator = getattr(torch.ops.aten, CPU_OPERATOR)
        k, v = self.repeat_key_heads(q, k, v)
        out, lse = operator(*map(heads_first, pad_to_widest(q, k, v)), 0.0, causal, scale=q.shape[2] ** -0.5)
        return out[0].transpose(0, 1)[..., : v.shape[2]], lse[0].transpose(0, 1)

    def backward(
        self, grad_out: Tensor, qkv: tuple[Tensor, Tensor, Tensor], seen: tuple[Tensor, Tensor], causal: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of q, k and v, in the shapes of `FusedKernel.backward`."""
        q, k, v = qkv
        operator = getattr(torch.ops.aten, f"{CPU_OPERATOR}_backward")
        padded, (out, lse) = pad_to_widest(q, *self.repeat_key_heads(q, k, v)), seen
        grad_out, out = (heads_first(pad_to_widest(x, padded[0])[0]) for x in (grad_out, out))
        gradients = operator(
            grad_out, *map(heads_first, padded), out, lse.transpose(0, 1)[None], 0.0, causal, scale=q.shape[2] ** -0.5
        )
        grad_q, grad_k, grad_v = (x[0].transpose(0, 1) for x in gradients)
        if not self.shares_key_heads:
            grad_k, grad_v = (torch.unflatten(x, 1, (k.shape[1], -1)).sum(2) for x in (grad_k, grad_v))
        return grad_q[..., : q.shape[2]], grad_k[..., : q.shape[2]], grad_v[..., : v.shape[2]]

    def repeat_key_heads(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Repeat k and v `(m, kv_heads, width)` to `(m, heads, width)`, unless the operator supports shared heads."""
        each = q.shape[1] // k.shape[1]
        return (
            (k, v)
            if self.shares_key_heads or each == 1
            else (k.repeat_interleave(each, 1), v.repeat_interleave(each, 1))
        )


@cache
def cpu_operator_shares_key_heads() -> bool:
    """Whether torch's CPU operator supports heads that share keys. It is internal to torch, so this is tried out."""
    q, k = torch.linspace(-1, 1, 16).view(2, 4, 2), torch.linspace(-1, 1, 12).view(3, 2, 2)
    try:
        kernel, (out, lse) = CpuFlashAttention(), explicit_attention.forward(q, k, k, None)
        computed = *kernel.forward(q, k, k, False), *kernel.backward(q, (q, k, k), (out, lse), False)
    except RuntimeError:
        return False
    expected = out, lse, *explicit_attention.backward(q, (q, k, k), lse, (q * out).sum(-1), None)
    return all(torch.allclose(*each, rtol=1e-4, atol=1e-5) for each in zip(computed, expected, strict=True))


class CudaFlashAttention:
    """Torch's CUDA flash kernel over packed sequences `(tokens, heads, width)`, of which there is one. There is no
    dropout, but backward requires the random state that forward returned.
    """

    def __init__(self, operators: Any = torch.ops.aten) -> None:
        self.operators = operators
        self.rng_state: list[Tensor] = []

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        """Output and log-sum-exp, in the shapes of `FusedKernel.forward`."""
        out, lse, *rng_state = self.operators._flash_attention_forward(
            *pad_to_widest(q, k, v), *sequence_arguments(q, k), 0.0, causal, False, scale=q.shape[2] ** -0.5
        )
        self.rng_state = rng_state[:2]
        return out[..., : v.shape[2]], lse.transpose(0, 1)

    def backward(
        self, grad_out: Tensor, qkv: tuple[Tensor, Tensor, Tensor], seen: tuple[Tensor, Tensor], causal: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of q, k and v, in the shapes of `FusedKernel.backward`."""
        q, k, v = qkv
        padded, (out, lse) = pad_to_widest(*qkv), seen
        grad_out, out = (pad_to_widest(x, padded[0])[0].contiguous() for x in (grad_out, out))
        lse = lse.transpose(0, 1).contiguous()
        grad_q, grad_k, grad_v = self.operators._flash_attention_backward(
            grad_out,
            *padded,
            out,
            lse,
            *sequence_arguments(q, k),
            0.0,
            causal,
            *self.rng_state,
            scale=q.shape[2] ** -0.5,
        )
        return grad_q[..., : q.shape[2]], grad_k[..., : q.shape[2]], grad_v[..., : v.shape[2]]


def heads_first(x: Tensor) -> Tensor:
    """`(tokens, heads, width)` to `(1, heads, tokens, width)`."""
    return x.transpose(0, 1)[None]


def pad_to_widest(*tensors: Tensor) -> list[Tensor]:
    """Tensors `(tokens, heads, width)` padded with zeros to one width, as kernels need; scores do not change."""
    width = max(x.shape[2] for x in tensors)
    return [x if x.shape[2] == width else F.pad(x, (0, width - x.shape[2])) for x in tensors]


def sequence_arguments(q: Tensor, k: Tensor) -> list[Any]:
    """The operator's arguments for one sequence of q `(n, heads, width)` and k `(m, kv_heads, width)`.

    They are the boundaries of queries and of keys, and the two lengths.
    """
    return [*(sequence_boundaries(len(x), q.device) for x in (q, k)), len(q), len(k)]


@lru_cache(maxsize=1024)
def sequence_boundaries(length: int, device: torch.device) -> Tensor:
    """The boundaries `(2)` of one sequence, on the device. Cached, since every layer has the same few lengths."""
    return torch.tensor([0, length], dtype=torch.int32, device=device)
