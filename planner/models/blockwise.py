"""Attention over blocks of keys and values that come one after another, and its log-sum-exp (arXiv 2205.14135).

With the log-sum-exp L of all of a query's scores, parts of the softmax that were computed apart add up, and backward
makes the probabilities of a block again as exp(score - L): no block needs to know another, so they may lie on different
ranks (ring attention, arXiv 2310.01889). A learned sink is one more score, known behind all others.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from planner.models import dense
from planner.models.fused import Kernel, kernel_for
from planner.models.pieces import Masking, Pair, hidden, longest, pairs, pieces

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
        width = block.shape[2] - q.shape[2]
        sight = Sight(kernel_for(q, width), passing.spans, masking)
        running = Running(q, width, sight)
        passing.around(block, running.add)
        ctx.passing, ctx.sight = passing, sight
        ctx.save_for_backward(q, block, running.out, running.lse)
        return running.out, running.lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_out: Tensor, of_lse: Tensor) -> tuple[Tensor, Tensor, None, None]:
        q, block, *seen = ctx.saved_tensors
        gradients = Gradients(q, seen, (of_out, of_lse), ctx.sight)
        of_block = ctx.passing.back(block, gradients.of_block)
        return gradients.of_q.to(q.dtype), of_block.to(block.dtype), None, None


class Sight:
    """What of a block a rank's queries see, and the kernel that looks: None where there is none for such heads."""

    def __init__(self, kernel: Kernel | None, spans: Spans, masking: Masking) -> None:
        self.kernel, self.masking = kernel, masking
        self.most = longest(masking, kernel is not None)
        self.pieces = pieces(spans, masking, self.most)

    def pairs(self, spans: Spans) -> Iterator[Pair]:
        """Of this rank's pieces with those of the block's tokens."""
        return pairs(self.pieces, pieces(spans, self.masking, self.most), self.masking)

    def kernel_of(self, pair: Pair) -> Kernel | None:
        return None if pair.seen == "some" else self.kernel


class Running:
    """What a rank's queries have seen so far: softmax and log-sum-exp of the scores up to here."""

    def __init__(self, q: Tensor, width: int, sight: Sight) -> None:
        kept = torch.promote_types(q.dtype, torch.float32)
        self.q, self.sight = q, sight
        self.out = q.new_zeros(*q.shape[:2], width, dtype=kept)
        self.lse = q.new_full(q.shape[:2], -torch.inf, dtype=kept)

    def add(self, spans: Spans, block: Tensor) -> None:
        """The keys and values of these tokens."""
        for pair in self.sight.pairs(spans):
            q, (k, v) = self.q[pair.queries], parted(block[pair.keys], self.q.shape[2])
            kernel = self.sight.kernel_of(pair)
            if kernel:
                self.merge(pair.queries, *kernel.forward(q, k, v, pair.seen == "triangle"))
            else:
                self.merge(pair.queries, *dense.forward(q, k, v, hidden(pair, self.sight.masking, q.device)))

    def merge(self, rows: slice, out: Tensor, lse: Tensor) -> None:
        total = torch.logaddexp(self.lse[rows], lse)
        before, now = ((each - dense.finite(total)).exp()[..., None] for each in (self.lse[rows], lse))
        self.out[rows] = self.out[rows] * before + out * now
        self.lse[rows] = total


class Gradients:
    """Of a rank's queries, and of each block that comes by."""

    def __init__(self, q: Tensor, seen: Sequence[Tensor], of_seen: tuple[Tensor, Tensor], sight: Sight) -> None:
        self.q, (out, self.lse), (self.of_out, of_lse), self.sight = q, seen, of_seen, sight
        product = (self.of_out * out).sum(-1)
        self.delta = product - of_lse
        # Kernels make delta of the output and its gradient: of an output that a sink makes shorter, it is this one.
        shorter = torch.where(product == 0, 1.0, self.delta / product).clamp(0, 1)
        self.out = (out * shorter[..., None]).to(q.dtype)
        self.of_q = torch.zeros_like(q, dtype=self.lse.dtype)

    def of_block(self, spans: Spans, block: Tensor) -> Tensor:
        """What this rank's queries add to it, in float32 or better."""
        found = torch.zeros_like(block, dtype=self.of_q.dtype)
        for pair in self.sight.pairs(spans):
            of_q, *of_keys = self.of_pair(pair, block[pair.keys])
            self.of_q[pair.queries] += of_q
            found[pair.keys] += torch.cat(of_keys, 2)
        return found

    def of_pair(self, pair: Pair, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of queries, keys and values."""
        rows, kernel, q = pair.queries, self.sight.kernel_of(pair), self.q[pair.queries]
        k, v = parted(block, q.shape[2])
        of_out, lse = self.of_out[rows], self.lse[rows]
        if kernel:
            return kernel.backward(of_out.to(q.dtype), (q, k, v), (self.out[rows], lse), pair.seen == "triangle")
        return dense.backward(of_out, (q, k, v), lse, self.delta[rows], hidden(pair, self.sight.masking, q.device))


def parted(block: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Keys and values."""
    return block[..., :width], block[..., width:]
