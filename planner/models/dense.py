"""Attention of some queries over some keys from its definition, with all scores in memory, and its gradients."""

import torch
from torch import Tensor


def forward(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
    """q [n, H, D] over k [m, Hkv, D] and v [m, Hkv, Dv]: softmax times values [n, H, Dv], log-sum-exp [n, H].

    `hidden` [n, m]: which keys a query does not see. One that sees none has 0 and -inf.
    """
    scores = scored(q, k, hidden)
    lse = scores.logsumexp(-1)
    weights = (scores - finite(lse)[..., None]).exp()
    out = torch.einsum("hgqk,khd->qhgd", weights, v.to(weights.dtype)).flatten(1, 2)
    return out, lse.movedim(2, 0).flatten(1, 2)


def backward(
    of_out: Tensor, qkv: tuple[Tensor, Tensor, Tensor], lse: Tensor, delta: Tensor, hidden: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v where these keys are a part of those that the queries see: `lse` [n, H] of all of them.

    `delta` [n, H]: the gradient of the output times the output, less the gradient of the log-sum-exp.
    """
    q, k, v = qkv
    heads = k.shape[1]
    scores = scored(q, k, hidden)
    weights = (scores - by_group(lse, heads)[..., None]).exp()
    q, k, v, of_out = (x.to(weights.dtype) for x in (q, k, v, of_out))
    of_out = by_group(of_out, heads)
    of_weights = torch.einsum("hgqd,khd->hgqk", of_out, v)
    of_scores = weights * (of_weights - by_group(delta, heads)[..., None]) * q.shape[2] ** -0.5
    of_q = torch.einsum("hgqk,khd->qhgd", of_scores, k).flatten(1, 2)
    of_k = torch.einsum("hgqk,hgqd->khd", of_scores, by_group(q, heads))
    return of_q, of_k, torch.einsum("hgqk,hgqd->khd", weights, of_out)


def scored(q: Tensor, k: Tensor, hidden: Tensor | None) -> Tensor:
    """[kv heads, queries that share one, n, m], in float32 or better; hidden ones are -inf."""
    kept = torch.promote_types(q.dtype, torch.float32)
    scores: Tensor = torch.einsum("hgqd,khd->hgqk", by_group(q, k.shape[1]).to(kept), k.to(kept))
    scores = scores * q.shape[2] ** -0.5
    return scores if hidden is None else scores.masked_fill(hidden, -torch.inf)


def by_group(x: Tensor, heads: int) -> Tensor:
    """[n, H, ...] to [kv heads, H / kv heads, n, ...]: a view."""
    return torch.unflatten(x, 1, (heads, -1)).movedim(0, 2)


def finite(x: Tensor) -> Tensor:
    """Nothing seen is a sum of nothing: exp(-inf - 0) = 0, where exp(-inf + inf) is no number."""
    return x.masked_fill(x == -torch.inf, 0.0)
