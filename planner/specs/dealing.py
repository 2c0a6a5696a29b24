"""Which tokens of packed documents each rank of a group has: even shares within sub-groups, zig-zag between these."""

from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """Consecutive tokens of one document."""

    document: int
    first: int
    last: int  # the one after


def dealt(lengths: Sequence[int], split: tuple[int, int], place: int, unit: int = 1) -> list[Span]:
    """The tokens of the rank in this place, in their order there. `split`: ranks of a sub-group, and sub-groups.

    Within a sub-group ranks have contiguous, even shares of its rows. Raises ValueError where tokens that stay
    together, `unit` of them, do not divide what there is.
    """
    ulysses, ring = split
    block, within = divmod(place, ulysses)
    spans = zigzag(lengths, ring, unit)[block] if ring > 1 else contiguous(lengths, 0, sum(lengths))
    return share(spans, ulysses, within, unit)


def share(spans: Sequence[Span], ways: int, place: int, unit: int = 1) -> list[Span]:
    """One even share of these rows."""
    sizes = even_sizes(rows(spans), ways, unit)
    begin = sum(sizes[:place])
    return portion(spans, begin, begin + sizes[place])


def zigzag(lengths: Sequence[int], ring: int, unit: int = 1) -> list[list[Span]]:
    """Of each sub-group, document by document. Each document is cut into 2N parts, and sub-group i of N has part i and
    part 2N - 1 - i: of causal attention the later sees more by as much as the earlier sees less.

    Parts of a document differ by at most one unit, and those that are longer are dealt in turn, from one document to
    the next: so no two sub-groups differ by more than two units in all. Parts may be empty.
    """
    found: list[list[Span]] = [[] for _ in range(ring)]
    parts, turn = 2 * ring, 0
    for document, length in enumerate(lengths):
        sizes, begin = even_sizes(length, parts, unit), 0
        for part in range(parts):
            size = sizes[(part - turn) % parts]
            if size:
                found[min(part, parts - 1 - part)].append(Span(document, begin, begin + size))
            begin += size
        turn += length // unit
    return found


def rows(spans: Sequence[tuple[int, int, int]]) -> int:
    return sum(last - first for _, first, last in spans)


def contiguous(lengths: Sequence[int], start: int, stop: int) -> list[Span]:
    """Tokens `start` to before `stop` of the packed documents."""
    return portion([Span(document, 0, length) for document, length in enumerate(lengths)], start, stop)


def portion(spans: Sequence[Span], start: int, stop: int) -> list[Span]:
    """Rows `start` to before `stop` of these spans, one after the other."""
    found, begin = [], 0
    for document, first, last in spans:
        low, high = max(start - begin, 0), min(stop - begin, last - first)
        if low < high:
            found.append(Span(document, first + low, first + high))
        begin += last - first
    return found


def even_sizes(tokens: int, ranks: int, unit: int = 1) -> tuple[int, ...]:
    """Contiguous shards that differ by at most one unit of tokens, the larger first."""
    units, rest = divmod(tokens, unit)
    if rest:
        raise ValueError(f"{tokens} tokens do not divide into units of {unit}")
    each, more = divmod(units, ranks)
    return tuple(unit * (each + (index < more)) for index in range(ranks))
