"""Attention over blocks of keys and values that arrive one after another, with its log-sum-exp (arXiv 2205.14135).

With the log-sum-exp L of all scores of a query, parts of a softmax that were computed separately are added up, and
backward recomputes the probabilities of a block as exp(score - L). No block needs another, so blocks may be on
different ranks (ring attention, arXiv 2310.01889). A learned sink is one more score, added after all others.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from planner.models.kernels import explicit_attention
from planner.models.kernels.attention_tiles import (
    Masking,
    TilePair,
    hidden_keys,
    max_tile_tokens,
    tiles_of,
    visible_pairs,
)
from planner.models.kernels.fused_attention import FusedKernel, fused_kernel_for

Spans = Sequence[tuple[int, int, int]]  # (document, first, last) of consecutive tokens, in the order of rows


class KeyValueBlocks(Protocol):
    """How a rank receives the blocks `(rows, kv_heads, head_dim + value_dim)` of all ranks that share documents."""

    @property
    def spans(self) -> Spans:
        """The spans of tokens on this rank."""

    def visit_blocks(self, block: Tensor, visit: Callable[[Spans, Tensor], None]) -> None:
        """Call `visit` on each rank's block `(rows, kv_heads, head_dim + value_dim)`, this rank's own first.

        All ranks must call it.
        """

    def visit_blocks_backward(self, block: Tensor, visit: Callable[[Spans, Tensor], Tensor]) -> Tensor:
        """The backward counterpart: `visit` returns the gradient of a block, of the block's shape; the result is the
        sum over ranks of the gradients of this rank's block.
        """


class LocalBlocks:
    """The blocks of a rank that has all keys and values of its documents."""

    def __init__(self, spans: Spans) -> None:
        self.spans = spans

    def visit_blocks(self, block: Tensor, visit: Callable[[Spans, Tensor], None]) -> None:
        """Visit this rank's block `(rows, kv_heads, head_dim + value_dim)`."""
        visit(self.spans, block)

    def visit_blocks_backward(self, block: Tensor, visit: Callable[[Spans, Tensor], Tensor]) -> Tensor:
        """The gradient of this rank's block, of the same shape."""
        return visit(self.spans, block)


def blockwise_attention(
    q: Tensor, k: Tensor, v: Tensor, blocks: KeyValueBlocks, masking: Masking, sinks: Tensor | None = None
) -> Tensor:
    """Attention of q `(tokens, heads, head_dim)` to k `(tokens, kv_heads, head_dim)` and v `(tokens, kv_heads,
    value_dim)` of all ranks, giving `(tokens, heads, value_dim)`; `sinks` are logits `(heads)`.
    """
    out, lse = _BlockwiseAttention.apply(q, torch.cat((k, v), 2), blocks, masking)  # type: ignore[no-untyped-call]
    if sinks is not None:
        out = out * torch.sigmoid(lse - sinks.to(lse.dtype))[:, :, None]  # exp(L) / (exp(L) + exp(sink))
    return out.to(q.dtype)  # type: ignore[no-any-return]


class _BlockwiseAttention(torch.autograd.Function):
    """Blockwise attention with its log-sum-exp: recomputes probabilities in backward."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, block: Tensor, blocks: KeyValueBlocks, masking: Masking) -> tuple[Tensor, Tensor]:
        width = block.shape[2] - q.shape[2]
        visible = VisibleTiles(fused_kernel_for(q, width), blocks.spans, masking)
        softmax = OnlineSoftmax(q, width, visible)
        blocks.visit_blocks(block, softmax.add_block)
        ctx.blocks, ctx.visible = blocks, visible
        ctx.save_for_backward(q, block, softmax.out, softmax.lse)
        return softmax.out, softmax.lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_out: Tensor, grad_lse: Tensor) -> tuple[Tensor, Tensor, None, None]:
        q, block, *seen = ctx.saved_tensors
        gradients = BlockwiseGradients(q, seen, (grad_out, grad_lse), ctx.visible)
        grad_block = ctx.blocks.visit_blocks_backward(block, gradients.block_gradient)
        return gradients.grad_q.to(q.dtype), grad_block.to(block.dtype), None, None


class VisibleTiles:
    """The tiles of a block that a rank's queries attend to, and the kernel that computes them, if there is one."""

    def __init__(self, kernel: FusedKernel | None, spans: Spans, masking: Masking) -> None:
        self.kernel, self.masking = kernel, masking
        self.max_tokens = max_tile_tokens(masking, kernel is not None)
        self.tiles = tiles_of(spans, masking, self.max_tokens)

    def pairs(self, spans: Spans) -> Iterator[TilePair]:
        """Visible pairs of this rank's tiles with those of a block."""
        return visible_pairs(self.tiles, tiles_of(spans, self.masking, self.max_tokens), self.masking)

    def kernel_of(self, pair: TilePair) -> FusedKernel | None:
        """The fused kernel for a pair; None where a mask is needed, or where there is no kernel."""
        return None if pair.visibility == "some" else self.kernel


class OnlineSoftmax:
    """Online softmax: output `(tokens, heads, value_dim)` and log-sum-exp `(tokens, heads)` over the blocks so far."""

    def __init__(self, q: Tensor, width: int, visible: VisibleTiles) -> None:
        wide = torch.promote_types(q.dtype, torch.float32)
        self.q, self.visible = q, visible
        self.out = q.new_zeros(*q.shape[:2], width, dtype=wide)
        self.lse = q.new_full(q.shape[:2], -torch.inf, dtype=wide)

    def add_block(self, spans: Spans, block: Tensor) -> None:
        """Add a block `(rows, kv_heads, head_dim + value_dim)` of keys and values of these spans."""
        for pair in self.visible.pairs(spans):
            q, (k, v) = self.q[pair.queries], split_keys_values(block[pair.keys], self.q.shape[2])
            kernel = self.visible.kernel_of(pair)
            if kernel:
                self.merge(pair.queries, *kernel.forward(q, k, v, pair.visibility == "triangle"))
            else:
                self.merge(
                    pair.queries,
                    *explicit_attention.forward(q, k, v, hidden_keys(pair, self.visible.masking, q.device)),
                )

    def merge(self, rows: slice, out: Tensor, lse: Tensor) -> None:
        """Combine output `(n, heads, value_dim)` and log-sum-exp `(n, heads)` over further keys with the rows'."""
        total = torch.logaddexp(self.lse[rows], lse)
        old_share, new_share = (
            (each - explicit_attention.finite_or_zero(total)).exp()[..., None] for each in (self.lse[rows], lse)
        )
        self.out[rows] = self.out[rows] * old_share + out * new_share
        self.lse[rows] = total


class BlockwiseGradients:
    """Gradients of a rank's queries, and of each block that it visits."""

    def __init__(
        self, q: Tensor, seen: Sequence[Tensor], grad_seen: tuple[Tensor, Tensor], visible: VisibleTiles
    ) -> None:
        self.q, (out, self.lse), (self.grad_out, grad_lse), self.visible = q, seen, grad_seen, visible
        product = (self.grad_out * out).sum(-1)
        self.delta = product - grad_lse
        # Kernels derive delta from the output and its gradient, so the output is scaled as the sink scales it.
        sink_scale = torch.where(product == 0, 1.0, self.delta / product).clamp(0, 1)
        self.out = (out * sink_scale[..., None]).to(q.dtype)
        self.grad_q = torch.zeros_like(q, dtype=self.lse.dtype)

    def block_gradient(self, spans: Spans, block: Tensor) -> Tensor:
        """The gradient `(rows, kv_heads, head_dim + value_dim)` of a block from own queries, at least float32."""
        gradient = torch.zeros_like(block, dtype=self.grad_q.dtype)
        for pair in self.visible.pairs(spans):
            grad_q, *grad_keys = self.pair_gradients(pair, block[pair.keys])
            self.grad_q[pair.queries] += grad_q
            gradient[pair.keys] += torch.cat(grad_keys, 2)
        return gradient

    def pair_gradients(self, pair: TilePair, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of the queries, keys and values of a pair, each of its tensor's shape."""
        rows, kernel, q = pair.queries, self.visible.kernel_of(pair), self.q[pair.queries]
        k, v = split_keys_values(block, q.shape[2])
        grad_out, lse = self.grad_out[rows], self.lse[rows]
        if kernel:
            return kernel.backward(
                grad_out.to(q.dtype), (q, k, v), (self.out[rows], lse), pair.visibility == "triangle"
            )
        return explicit_attention.backward(
            grad_out, (q, k, v), lse, self.delta[rows], hidden_keys(pair, self.visible.masking, q.device)
        )


def split_keys_values(block: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Split a block `(rows, kv_heads, head_dim + value_dim)` into keys of `width` columns, and values."""
    return block[..., :width], block[..., width:]
