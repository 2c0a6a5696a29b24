"""Attention over blocks of keys and values that come one after another, and its log-sum-exp (arXiv 2205.14135).

With the log-sum-exp L of all of a query's scores, parts of the softmax that were computed apart add up, and backward
makes the probabilities of a block again as exp(score - L): no block needs to know another, so they may lie on different
ranks (ring attention, arXiv 2310.01889). A learned sink is one more score, known behind all others.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from planner.models.pieces import Masking, Pair, Piece, hidden, longest, pairs, pieces

Spans = Sequence[tuple[int, int, int]]  # (document, first, last) of consecutive tokens, in the order of a rank's rows


class Passing(Protocol):
    """How a rank comes by the blocks [rows, kv heads, D + Dv] of keys and values of all ranks that share documents."""

    @property
    def spans(self) -> Spans:
        """This rank's tokens."""

    def around(self, block: Tensor, visit: Callable[[Spans, Tensor], None]) -> None:
        """Show each rank's block to `visit`, this rank's own first. Every rank calls it."""

    def back(self, block: Tensor, visit: Callable[[Spans, Tensor], Tensor]) -> Tensor:
        """The same, where `visit` gives a gradient of the block: the sum of all ranks' gradients of this rank's."""


class Staying:
    """A rank that has all of its documents' keys and values."""

    def __init__(self, spans: Spans) -> None:
        self.spans = spans

    def around(self, block: Tensor, visit: Callable[[Spans, Tensor], None]) -> None:
        visit(self.spans, block)

    def back(self, block: Tensor, visit: Callable[[Spans, Tensor], Tensor]) -> Tensor:
        return visit(self.spans, block)


def blockwise(
    q: Tensor, k: Tensor, v: Tensor, passing: Passing, masking: Masking, sinks: Tensor | None = None
) -> Tensor:
    """q [t, H, D] over k [t, Hkv, D] and v [t, Hkv, Dv] of all ranks, to [t, H, Dv]; `sinks` [H] logits."""
    out, lse = _Blockwise.apply(q, torch.cat((k, v), 2), passing, masking)  # type: ignore[no-untyped-call]
    if sinks is not None:
        out = out * torch.sigmoid(lse - sinks.to(lse.dtype))[:, :, None]  # exp(L) / (exp(L) + exp(sink))
    return out.to(q.dtype)  # type: ignore[no-any-return]


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, block: Tensor, passing: Passing, masking: Masking) -> tuple[Tensor, Tensor]:
        running = Running(q, block.shape[2] - q.shape[2], passing.spans, masking)
        passing.around(block, running.add)
        ctx.passing, ctx.masking = passing, masking
        ctx.save_for_backward(q, block, running.out, running.lse)
        return running.out, running.lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_out: Tensor, of_lse: Tensor) -> tuple[Tensor, Tensor, None, None]:
        q, block, out, lse = ctx.saved_tensors
        gradients = Gradients(q, lse, of_out, (of_out * out).sum(-1) - of_lse, (ctx.passing.spans, ctx.masking))
        of_block = ctx.passing.back(block, gradients.of_block)
        return gradients.of_q.to(q.dtype), of_block.to(block.dtype), None, None


class Running:
    """What a rank's queries have seen so far: softmax and log-sum-exp of the scores up to here."""

    def __init__(self, q: Tensor, width: int, spans: Spans, masking: Masking) -> None:
        self.q, self.masking = q, masking
        self.pieces = pieces(spans, masking, longest(masking))
        kept = torch.promote_types(q.dtype, torch.float32)
        self.out = q.new_zeros(*q.shape[:2], width, dtype=kept)
        self.lse = q.new_full(q.shape[:2], -torch.inf, dtype=kept)

    def add(self, spans: Spans, block: Tensor) -> None:
        """The keys and values of these tokens."""
        for pair in paired(self.pieces, spans, self.masking):
            rows, (k, v) = pair.queries, parted(block[pair.keys], self.q.shape[2])
            scores = scored(self.q[rows], k, pair, self.masking)
            lse = scores.logsumexp(-1)  # -inf of a query that sees none of these keys
            weights = (scores - finite(lse)[..., None]).exp()
            self.merge(rows, torch.einsum("hgqk,khd->qhgd", weights, v.to(weights.dtype)).flatten(1, 2), by_row(lse))

    def merge(self, rows: slice, out: Tensor, lse: Tensor) -> None:
        total = torch.logaddexp(self.lse[rows], lse)
        before, now = ((each - finite(total)).exp()[..., None] for each in (self.lse[rows], lse))
        self.out[rows] = self.out[rows] * before + out * now
        self.lse[rows] = total


class Gradients:
    """Of a rank's queries, and of each block that comes by."""

    def __init__(self, q: Tensor, lse: Tensor, of_out: Tensor, delta: Tensor, seen: tuple[Spans, Masking]) -> None:
        self.q, self.lse, self.of_out, self.delta = q, lse, of_out, delta
        spans, self.masking = seen
        self.pieces = pieces(spans, self.masking, longest(self.masking))
        self.of_q = torch.zeros_like(q, dtype=lse.dtype)

    def of_block(self, spans: Spans, block: Tensor) -> Tensor:
        """What this rank's queries add to it, in float32 or better."""
        found = torch.zeros_like(block, dtype=self.lse.dtype)
        width, heads = self.q.shape[2], block.shape[1]
        for pair in paired(self.pieces, spans, self.masking):
            q, (k, v) = self.q[pair.queries], parted(block[pair.keys], width)
            of_out, lse, delta = (by_group(x[pair.queries], heads) for x in (self.of_out, self.lse, self.delta))
            weights = (scored(q, k, pair, self.masking) - lse[..., None]).exp()
            of_weights = torch.einsum("hgqd,khd->hgqk", of_out, v.to(weights.dtype))
            of_scores = weights * (of_weights - delta[..., None]) * width**-0.5
            of_k, of_v = parted(found[pair.keys], width)
            of_v += torch.einsum("hgqk,hgqd->khd", weights, of_out)
            of_k += torch.einsum("hgqk,hgqd->khd", of_scores, by_group(q, heads).to(weights.dtype))
            self.of_q[pair.queries] += torch.einsum("hgqk,khd->qhgd", of_scores, k.to(weights.dtype)).flatten(1, 2)
        return found


def paired(queries: list[Piece], spans: Spans, masking: Masking) -> Iterable[Pair]:
    return pairs(queries, pieces(spans, masking, longest(masking)), masking)


def parted(block: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Keys and values."""
    return block[..., :width], block[..., width:]


def scored(q: Tensor, k: Tensor, pair: Pair, masking: Masking) -> Tensor:
    """[kv heads, queries that share one, queries, keys], in float32 or better; hidden ones are -inf."""
    kept = torch.promote_types(q.dtype, torch.float32)
    scores: Tensor = torch.einsum("hgqd,khd->hgqk", by_group(q, k.shape[1]).to(kept), k.to(kept))
    scores = scores * q.shape[2] ** -0.5
    return scores if pair.whole else scores.masked_fill(hidden(pair, masking, q.device), -torch.inf)


def by_group(x: Tensor, heads: int) -> Tensor:
    """[t, H, ...] to [kv heads, H / kv heads, t, ...]: a view."""
    return torch.unflatten(x, 1, (heads, -1)).movedim(0, 2)


def by_row(x: Tensor) -> Tensor:
    """[kv heads, H / kv heads, t] to [t, H]."""
    return x.movedim(2, 0).flatten(1, 2)


def finite(x: Tensor) -> Tensor:
    """Nothing seen is a sum of nothing: exp(-inf - 0) = 0, where exp(-inf + inf) is no number."""
    return x.masked_fill(x == -torch.inf, 0.0)
