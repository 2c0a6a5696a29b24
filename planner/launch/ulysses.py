"""DeepSpeed-Ulysses sequence parallelism (arXiv:2309.14509) over shards of any sizes.

Before attention each rank gives away its tokens' heads and gets its heads' tokens, one all-to-all for query, key and
value together; afterwards another all-to-all undoes it. In memory the heads of one destination lie together, so the
sizes of the pieces are all the collective needs to know, and no tensor is padded.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from planner.launch.groups import Groups
from planner.launch.meter import Meter
from planner.models.attention import Masking, packed_attention
from planner.models.exchange import WHOLE, Exchange, Span, contiguous


class Ulysses:
    """The `Exchange` of one rank in one group: rank i of the group holds sizes[i] tokens and heads / degree heads.

    Key/value heads that are fewer than the ranks are repeated: up to the least common multiple of the two.
    """

    def __init__(self, group: dist.ProcessGroup, sizes: Sequence[int], meter: Meter) -> None:
        self.group, self.sizes, self.meter = group, tuple(sizes), meter
        self.degree, self.index = dist.get_world_size(group), dist.get_rank(group)
        if len(self.sizes) != self.degree:
            raise ValueError(f"{len(self.sizes)} shards for a group of {self.degree} ranks")

    def held(self, lengths: Sequence[int]) -> list[Span]:
        stops, tokens = list(accumulate(self.sizes)), sum(lengths)
        if stops[-1] != tokens:
            raise ValueError(f"the shards hold {stops[-1]} tokens, the documents {tokens}")
        return contiguous(lengths, stops[self.index] - self.sizes[self.index], stops[self.index])

    def attend(self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking) -> Tensor:
        q, k, v = self.seq_to_heads(q, k, v)
        return self.heads_to_seq(packed_attention(q, k, v, cu_seqlens, masking))

    def seq_to_heads(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[t, H, D] each to [T, h, D] each: every token, some heads."""
        heads, kv_heads = q.shape[1] // self.degree, math.lcm(k.shape[1], self.degree) // self.degree
        copies = kv_heads * self.degree // k.shape[1]
        if copies > 1:
            k, v = k.repeat_interleave(copies, 1), v.repeat_interleave(copies, 1)
        parts = [torch.unflatten(x, 1, (self.degree, -1)).transpose(0, 1) for x in (q, k, v)]
        sent = torch.cat(parts, 2).flatten(0, 1)  # [degree * t, heads of one rank, D]
        mine = [self.sizes[self.index]] * self.degree
        received = self.exchange(sent, mine, list(self.sizes))  # [T, heads of this rank, D]
        q, k, v = torch.split(received, [heads, kv_heads, kv_heads], 1)
        return q, k, v

    def heads_to_seq(self, out: Tensor) -> Tensor:
        """[T, h, D] to [t, H, D]: the inverse, for the output of attention."""
        tokens = self.sizes[self.index]
        mine = [tokens] * self.degree
        received = self.exchange(out.contiguous(), list(self.sizes), mine)  # [degree * t, h, D]
        return received.view(self.degree, tokens, *out.shape[1:]).transpose(0, 1).flatten(1, 2)

    def exchange(self, x: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """`all_to_all` with a gradient."""
        out: Tensor = _AllToAll.apply(x, self, sent, received)  # type: ignore[no-untyped-call]
        return out

    def all_to_all(self, x: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Rows of x, `sent[i]` to rank i, for `received[i]` rows from it."""
        out = x.new_empty(sum(received), *x.shape[1:])
        row_bytes = x[0].nbytes if len(x) else 0
        with self.meter.measure(x.device, row_bytes * (len(x) - sent[self.index])):
            dist.all_to_all_single(out, x, received, sent, group=self.group)
        return out


class _AllToAll(torch.autograd.Function):
    """The gradient of an exchange is the exchange back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: Ulysses, sent: list[int], received: list[int]) -> Tensor:
        ctx.exchange, ctx.sent, ctx.received = exchange, sent, received
        return exchange.all_to_all(x, sent, received)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        back = ctx.exchange.all_to_all(gradient.contiguous(), ctx.received, ctx.sent)
        return back, None, None, None


def exchange_over(groups: Groups, ranks: Sequence[int], sizes: Sequence[int], meter: Meter) -> Exchange:
    """How these ranks share a packed batch whose shards have these sizes."""
    return Ulysses(groups[ranks], sizes, meter) if len(ranks) > 1 else WHOLE
