"""DeepSpeed-Ulysses sequence parallelism (arXiv:2309.14509) over shards of any sizes.

Before attention each rank gives away its tokens' heads and gets its heads' tokens, one all-to-all for query, key and
value together; afterwards another all-to-all undoes it. In memory the heads of one destination lie together, so the
sizes of the pieces are all the collective needs to know, and no tensor is padded.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor

from planner.launch.meter import Meter
from planner.launch.ragged import Ragged
from planner.models.attention import packed_attention
from planner.models.pieces import Masking
from planner.specs.dealing import Span, contiguous


class Ulysses:
    """The `Exchange` of one rank in one group: rank i of the group holds sizes[i] tokens and heads / degree heads.

    Key/value heads that are fewer than the ranks are repeated: up to the least common multiple of the two.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        sizes: Sequence[int],
        meter: Meter,
        attention: Callable[..., Tensor] = packed_attention,  # over the tokens of the whole group, for some heads
    ) -> None:
        self.sizes, self.attention, self.ranks = tuple(sizes), attention, Ragged(group, meter)
        self.degree, self.index = self.ranks.ranks, self.ranks.index
        if len(self.sizes) != self.degree:
            raise ValueError(f"{len(self.sizes)} shards for a group of {self.degree} ranks")

    def held(self, lengths: Sequence[int]) -> list[Span]:
        stops, tokens = list(accumulate(self.sizes)), sum(lengths)
        if stops[-1] != tokens:
            raise ValueError(f"the shards hold {stops[-1]} tokens, the documents {tokens}")
        return contiguous(lengths, stops[self.index] - self.sizes[self.index], stops[self.index])

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
    ) -> Tensor:
        q, k, v = self.seq_to_heads(q, k, v)
        own = None if sinks is None else sinks.chunk(self.degree)[self.index]
        return self.heads_to_seq(self.attention(q, k, v, cu_seqlens, masking, own))

    def seq_to_heads(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[t, H, D] each to [T, h, D] each, v of a width of its own: every token, some heads."""
        kv_heads = math.lcm(k.shape[1], self.degree)
        copies = kv_heads // k.shape[1]
        if copies > 1:
            k, v = k.repeat_interleave(copies, 1), v.repeat_interleave(copies, 1)
        shapes = [(x.shape[1] // self.degree, x.shape[2]) for x in (q, k, v)]
        parts = [torch.unflatten(x, 1, (self.degree, -1)).transpose(0, 1).flatten(2) for x in (q, k, v)]
        sent = torch.cat(parts, 2).flatten(0, 1)  # [degree * t, numbers of one rank's heads]
        mine = [self.sizes[self.index]] * self.degree
        received = self.ranks.all_to_all(sent, mine, self.sizes)  # [T, numbers of this rank's heads]
        split = torch.split(received, [heads * width for heads, width in shapes], 1)
        q, k, v = (torch.unflatten(x, 1, shape) for x, shape in zip(split, shapes, strict=True))
        return q, k, v

    def heads_to_seq(self, out: Tensor) -> Tensor:
        """[T, h, D] to [t, H, D]: the inverse, for the output of attention."""
        tokens = self.sizes[self.index]
        mine = [tokens] * self.degree
        received = self.ranks.all_to_all(out, self.sizes, mine)  # [degree * t, h, D]
        return received.view(self.degree, tokens, *out.shape[1:]).transpose(0, 1).flatten(1, 2)
