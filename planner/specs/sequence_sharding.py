"""Sequence sharding of packed documents over a group: even shares within Ulysses blocks, zig-zag around rings; where a
document is a part of an item (an image, a frame), shares of whole documents, as far as these are nearly even.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

# Of an even share: how much more a rank may have, that no document is cut and no head exchanged. An exchange takes some
# per cent of a pass within a node, and more across nodes.
UNEVEN = 1 / 32


class SequenceSplit(NamedTuple):
    """How a group shards each item: by heads in blocks of consecutive ranks (Ulysses), by tokens in rings."""

    ulysses: int = 1  # ranks of a block
    ring: int = 1  # blocks

    @property
    def degree(self) -> int:
        """The number of ranks over which an item's tokens are sharded."""
        return self.ulysses * self.ring

    def ulysses_blocks(self, ranks: Sequence[int]) -> list[Sequence[int]]:
        """Return the blocks of ranks that exchange heads by all-to-all."""
        return [ranks[first : first + self.ulysses] for first in range(0, len(ranks), self.ulysses)]

    def rings(self, ranks: Sequence[int]) -> list[Sequence[int]]:
        """Return the rings: ranks with the same index in each block."""
        return [ranks[index :: self.ulysses] for index in range(self.ulysses)]


class Span(NamedTuple):
    """Consecutive tokens of one document."""

    document: int
    first: int
    last: int  # the one after


def rank_spans(
    lengths: Sequence[int], split: tuple[int, int], index: int, unit: int = 1, parts: bool = False
) -> list[Span]:
    """Return the spans of the rank with this index in its group, in its order. `split`: Ulysses degree, ring degree;
    `parts`: documents are parts of items.

    Ranks of a Ulysses block have contiguous, even shares of its tokens, of parts nearly even ones that cut none
    (`whole_shares`). `unit` tokens stay together. Raises ValueError where they do not divide the number of tokens.
    """
    ulysses, ring = split
    whole = whole_shares(lengths, split) if parts else None
    if whole:
        begin = sum(map(sum, whole[:index]))
        return token_range(lengths, begin, begin + sum(whole[index]))
    block, within = divmod(index, ulysses)
    spans = zigzag(lengths, ring, unit)[block] if ring > 1 else token_range(lengths, 0, sum(lengths))
    return even_share(spans, ulysses, within, unit)


def even_share(spans: Sequence[Span], degree: int, index: int, unit: int = 1) -> list[Span]:
    """Return one of `degree` contiguous, even shares of these tokens."""
    sizes = even_sizes(token_count(spans), degree, unit)
    begin = sum(sizes[:index])
    return slice_spans(spans, begin, begin + sizes[index])


def whole_shares(lengths: Sequence[int], split: tuple[int, int]) -> list[tuple[int, ...]] | None:
    """Return the documents of each rank of a group, by their lengths: contiguous shares that begin where a document
    does, next to where an even share would; None where a rank would have too much, or the group is a ring.

    Then no attention crosses ranks: each computes its own documents, and nothing is exchanged.
    """
    degree, ring = split
    if degree == 1 or ring > 1 or len(lengths) < degree:
        return None
    ends = [0, *accumulate(lengths)]
    even = ends[-1] / degree
    cuts = [min(range(len(ends)), key=lambda at: abs(ends[at] - rank * even)) for rank in range(degree + 1)]
    shares = [tuple(lengths[first:last]) for first, last in pairwise(cuts)]
    return shares if max(map(sum, shares)) <= even * (1 + UNEVEN) else None


def zigzag(lengths: Sequence[int], ring: int, unit: int = 1) -> list[list[Span]]:
    """Return the spans of each ring position, document by document. Each document is cut into 2N parts, and position i
    of N has parts i and 2N - 1 - i, which balances causal attention: the later part attends to more tokens by as many
    as the earlier attends to less.

    Parts of a document differ by at most one unit, and the longer ones rotate from one document to the next: so no two
    positions differ by more than two units in all. Parts may be empty.
    """
    result: list[list[Span]] = [[] for _ in range(ring)]
    parts, turn = 2 * ring, 0
    for document, length in enumerate(lengths):
        sizes, begin = even_sizes(length, parts, unit), 0
        for part in range(parts):
            size = sizes[(part - turn) % parts]
            if size:
                result[min(part, parts - 1 - part)].append(Span(document, begin, begin + size))
            begin += size
        turn += length // unit
    return result


def token_count(spans: Sequence[tuple[int, int, int]]) -> int:
    """Return the number of tokens in these spans."""
    return sum(last - first for _, first, last in spans)


def token_range(lengths: Sequence[int], start: int, stop: int) -> list[Span]:
    """Return tokens `start` to before `stop` of the packed documents."""
    return slice_spans([Span(document, 0, length) for document, length in enumerate(lengths)], start, stop)


def slice_spans(spans: Sequence[Span], start: int, stop: int) -> list[Span]:
    """Return tokens `start` to before `stop` of these spans, counted over all of them in order."""
    result, begin = [], 0
    for document, first, last in spans:
        low, high = max(start - begin, 0), min(stop - begin, last - first)
        if low < high:
            result.append(Span(document, first + low, first + high))
        begin += last - first
    return result


def even_sizes(tokens: int, ranks: int, unit: int = 1) -> tuple[int, ...]:
    """Return sizes of contiguous shards that differ by at most one unit of tokens, larger ones first."""
    units, rest = divmod(tokens, unit)
    if rest:
        raise ValueError(f"{tokens} tokens do not divide into units of {unit}")
    least, more = divmod(units, ranks)
    return tuple(unit * (least + (index < more)) for index in range(ranks))
