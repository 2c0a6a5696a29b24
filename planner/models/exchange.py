"""How the ranks of a sequence-parallel group share out a packed batch, and how they attend over all of it.

The models know only this protocol: attention needs whole documents, everything else works token by token.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from planner.models.attention import Masking, packed_attention


class Span(NamedTuple):
    """Consecutive tokens of one document."""

    document: int
    first: int
    last: int  # the one after


class Exchange(Protocol):
    """A group as a model sees it: T tokens in the group, t on this rank, H heads."""

    def held(self, lengths: Sequence[int]) -> list[Span]:
        """The tokens of this rank, in their order on it, of documents of these lengths."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking) -> Tensor:
        """q [t, H, D], k [t, Hkv, D] and v [t, Hkv, Dv] of this rank's tokens to [t, H, Dv]; `cu_seqlens` of all T."""


class Whole:
    """A group of one rank: it has every token and every head."""

    def held(self, lengths: Sequence[int]) -> list[Span]:
        return [Span(document, 0, length) for document, length in enumerate(lengths)]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, masking: Masking) -> Tensor:
        return packed_attention(q, k, v, cu_seqlens, masking)


WHOLE = Whole()


def contiguous(lengths: Sequence[int], start: int, stop: int) -> list[Span]:
    """Tokens `start` to before `stop` of the packed documents."""
    spans, begin = [], 0
    for document, length in enumerate(lengths):
        first, last = max(start - begin, 0), min(stop - begin, length)
        if first < last:
            spans.append(Span(document, first, last))
        begin += length
    return spans


def even_sizes(tokens: int, ranks: int, unit: int = 1) -> tuple[int, ...]:
    """Contiguous shards that differ by at most one unit of tokens, the larger first."""
    units, rest = divmod(tokens, unit)
    if rest:
        raise ValueError(f"{tokens} tokens do not divide into units of {unit}")
    each, more = divmod(units, ranks)
    return tuple(unit * (each + (index < more)) for index in range(ranks))
