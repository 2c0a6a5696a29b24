"""Attention by its definition, with all scores in memory, and its gradients: for where no fused kernel applies."""

import torch
from torch import Tensor


def forward(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention of q `(n, heads, head_dim)` to k `(m, kv_heads, head_dim)` and v `(m, kv_heads, value_dim)`: the output
    `(n, heads, value_dim)` and the log-sum-exp `(n, heads)`.

    `hidden` `(n, m)` marks keys that a query does not attend to. A query that attends to none has output 0 and
    log-sum-exp -inf.
    """
    scores = attention_scores(q, k, hidden)
    lse = scores.logsumexp(-1)
    weights = (scores - finite_or_zero(lse)[..., None]).exp()
    out = torch.einsum("hgqk,khd->qhgd", weights, v.to(weights.dtype)).flatten(1, 2)
    return out, lse.movedim(2, 0).flatten(1, 2)


def backward(
    grad_out: Tensor, qkv: tuple[Tensor, Tensor, Tensor], lse: Tensor, delta: Tensor, hidden: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, where these keys may be a part of all: `lse` `(n, heads)` is over all keys of a query.

    `grad_out` is `(n, heads, value_dim)`; `delta` `(n, heads)` is the product of the output and its gradient, minus the
    gradient of the log-sum-exp.
    """
    q, k, v = qkv
    heads = k.shape[1]
    scores = attention_scores(q, k, hidden)
    weights = (scores - group_heads(lse, heads)[..., None]).exp()
    q, k, v, grad_out = (x.to(weights.dtype) for x in (q, k, v, grad_out))
    grad_out = group_heads(grad_out, heads)
    grad_weights = torch.einsum("hgqd,khd->hgqk", grad_out, v)
    grad_scores = weights * (grad_weights - group_heads(delta, heads)[..., None]) * q.shape[2] ** -0.5
    grad_q = torch.einsum("hgqk,khd->qhgd", grad_scores, k).flatten(1, 2)
    grad_k = torch.einsum("hgqk,hgqd->khd", grad_scores, group_heads(q, heads))
    return grad_q, grad_k, torch.einsum("hgqk,hgqd->khd", weights, grad_out)


def attention_scores(q: Tensor, k: Tensor, hidden: Tensor | None) -> Tensor:
    """Scores `(kv_heads, queries per kv head, n, m)` in float32 or better; hidden ones are -inf."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    scores: Tensor = torch.einsum("hgqd,khd->hgqk", group_heads(q, k.shape[1]).to(dtype), k.to(dtype))
    scores = scores * q.shape[2] ** -0.5
    return scores if hidden is None else scores.masked_fill(hidden, -torch.inf)


def group_heads(x: Tensor, kv_heads: int) -> Tensor:
    """A view of `(n, heads, ...)` as `(kv_heads, heads / kv_heads, n, ...)`."""
    return torch.unflatten(x, 1, (kv_heads, -1)).movedim(0, 2)


def finite_or_zero(x: Tensor) -> Tensor:
    """Replace -inf by 0 (any shape): a query without keys then has weights exp(-inf - 0) = 0 in place of NaN."""
    return x.masked_fill(x == -torch.inf, 0.0)
