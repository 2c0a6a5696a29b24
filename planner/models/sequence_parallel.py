"""How the ranks of a sequence-parallel group share a packed batch, and how they compute attention over all of it.

Models know only this protocol: attention needs whole documents, all other work is per token.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from planner.models.kernels.attention import packed_attention
from planner.models.kernels.attention_tiles import Masking
from planner.specs.sequence_sharding import Span


class SequenceParallel(Protocol):
    """A sequence-parallel group as a model sees it."""

    def local_spans(self, lengths: Sequence[int]) -> list[Span]:
        """The spans of tokens on this rank, in the order of its rows, of documents of these lengths."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
    ) -> Tensor:
        """Attention of q `(tokens, heads, head_dim)`, k `(tokens, kv_heads, head_dim)` and v `(tokens, kv_heads,
        value_dim)` of this rank's tokens to all tokens of the group, giving `(tokens, heads, value_dim)`.

        `cu_seqlens` `(documents + 1)` covers all tokens of the group; `sinks` `(heads)` is one more logit beside each
        head's scores.
        """


class NoSequenceParallel:
    """A group of one rank, which has every token and every head."""

    def local_spans(self, lengths: Sequence[int]) -> list[Span]:
        """Every token of every document."""
        return [Span(document, 0, length) for document, length in enumerate(lengths)]

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
    ) -> Tensor:
        """Attention with the arguments and shapes of `packed_attention`."""
        return packed_attention(q, k, v, cu_seqlens, masking, sinks)


NO_SEQUENCE_PARALLEL = NoSequenceParallel()
