"""DeepSpeed-Ulysses sequence parallelism (arXiv 2309.14509) over shards of any sizes.

Before attention each rank exchanges its tokens' heads for its heads' tokens, in one all-to-all for queries, keys and
values together; afterwards another all-to-all reverses it. The heads for one destination are contiguous in memory, so
the collective needs only the numbers of rows, and no tensor is padded.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor

from planner.launch.communication.communication_meter import CommunicationMeter
from planner.launch.communication.ragged_collectives import RaggedGroup
from planner.models.kernels import Masking, packed_attention
from planner.specs.sequence_sharding import Span, token_range


class UlyssesAttention:
    """The `SequenceParallel` of one rank in one group: rank i holds sizes[i] tokens and heads / degree heads.

    Where there are fewer key/value heads than ranks, they are repeated, up to the least common multiple of the two.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        sizes: Sequence[int],
        meter: CommunicationMeter,
        attention: Callable[..., Tensor] = packed_attention,  # over all tokens of the group, for some heads
    ) -> None:
        self.sizes, self.attention, self.collectives = tuple(sizes), attention, RaggedGroup(group, meter, "ulysses")
        self.degree, self.index = self.collectives.size, self.collectives.index
        if len(self.sizes) != self.degree:
            raise ValueError(f"{len(self.sizes)} shards for a group of {self.degree} ranks")

    def local_spans(self, lengths: Sequence[int]) -> list[Span]:
        """The spans of this rank. Raises ValueError for documents of other lengths."""
        stops, tokens = list(accumulate(self.sizes)), sum(lengths)
        if stops[-1] != tokens:
            raise ValueError(f"the shards hold {stops[-1]} tokens, the documents {tokens}")
        return token_range(lengths, stops[self.index] - self.sizes[self.index], stops[self.index])

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
    ) -> Tensor:
        """Attention with the arguments and shapes of `SequenceParallel.attend`."""
        q, k, v = self.seq_to_heads(q, k, v)
        own_sinks = None if sinks is None else sinks.chunk(self.degree)[self.index]
        return self.heads_to_seq(self.attention(q, k, v, cu_seqlens, masking, own_sinks))

    def seq_to_heads(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Exchange q, k and v from `(tokens, heads, head_dim)`, with own tokens and all heads, to `(group_tokens,
        heads / degree, head_dim)`. The head size of v may differ.
        """
        kv_heads = math.lcm(k.shape[1], self.degree)
        copies = kv_heads // k.shape[1]
        if copies > 1:
            k, v = k.repeat_interleave(copies, 1), v.repeat_interleave(copies, 1)
        shapes = [(x.shape[1] // self.degree, x.shape[2]) for x in (q, k, v)]
        parts = [torch.unflatten(x, 1, (self.degree, -1)).transpose(0, 1).flatten(2) for x in (q, k, v)]
        outgoing = torch.cat(parts, 2).flatten(0, 1)  # (degree * tokens, columns of one rank's heads)
        own_sizes = [self.sizes[self.index]] * self.degree
        received = self.collectives.all_to_all(outgoing, own_sizes, self.sizes)  # (group_tokens, own heads' columns)
        split = torch.split(received, [heads * width for heads, width in shapes], 1)
        q, k, v = (torch.unflatten(x, 1, shape) for x, shape in zip(split, shapes, strict=True))
        return q, k, v

    def heads_to_seq(self, out: Tensor) -> Tensor:
        """The inverse for an output: `(group_tokens, heads / degree, value_dim)` to `(tokens, heads, value_dim)`."""
        tokens = self.sizes[self.index]
        own_sizes = [tokens] * self.degree
        received = self.collectives.all_to_all(out, self.sizes, own_sizes)  # (degree * tokens, heads / degree, ...)
        return received.view(self.degree, tokens, *out.shape[1:]).transpose(0, 1).flatten(1, 2)
