"""How the ranks of a sequence-parallel group share out a packed batch, and how they attend over all of it.

The models know only this protocol: attention needs whole documents, everything else works token by token.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from planner.models.attention import packed_attention
from planner.models.pieces import Masking
from planner.specs.dealing import Span


class Exchange(Protocol):
    """A group as a model sees it: T tokens in the group, t on this rank, H heads."""

    def held(self, lengths: Sequence[int]) -> list[Span]:
        """The tokens of this rank, in their order on it, of documents of these lengths."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
    ) -> Tensor:
        """q [t, H, D], k [t, Hkv, D] and v [t, Hkv, Dv] of this rank's tokens to [t, H, Dv]; `cu_seqlens` of all T.

        `sinks` [H]: a logit beside each of a head's scores.
        """


class Whole:
    """A group of one rank: it has every token and every head."""

    def held(self, lengths: Sequence[int]) -> list[Span]:
        return [Span(document, 0, length) for document, length in enumerate(lengths)]

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking, sinks: Tensor | None = None
    ) -> Tensor:
        return packed_attention(q, k, v, cu_seqlens, masking, sinks)


WHOLE = Whole()
