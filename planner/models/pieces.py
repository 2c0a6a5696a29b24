"""Which queries see which keys, as pairs of pieces of documents: what is hidden is left out before any arithmetic.

A causal window slides: of a token at place p the keys from p - window + 1 to p. Another window parts a document into
blocks of that many tokens, and is gone once pieces are: each block is a document of its own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

LONGEST, SHORTEST, UNLIMITED = 512, 64, 2**62  # tokens of a piece


@dataclass(frozen=True, slots=True)
class Masking:
    """Who attends to whom within a document."""

    causal: bool
    window: int | None = None  # tokens that a token attends to, itself among them; None: all of them


class Piece(NamedTuple):
    """Consecutive tokens of one document, and where they lie on their rank."""

    document: tuple[int, int]  # and which block of it, where a window parts it
    first: int
    last: int  # the one after
    row: int

    @property
    def rows(self) -> slice:
        return slice(self.row, self.row + self.last - self.first)


Seen = Literal["all", "triangle", "some"]


class Pair(NamedTuple):
    """Queries and keys of which at least one sees one."""

    queries: slice  # of the rows of their rank
    keys: slice
    ahead: int  # of the first key's place in the document, the first query's
    seen: Seen  # every key; or as many as there are queries, each up to its own

    @property
    def products(self) -> int:
        """Scores that are computed, hidden ones among them."""
        return length(self.queries) * length(self.keys)


def length(rows: slice) -> int:
    return int(rows.stop) - int(rows.start)


def pieces(spans: Iterable[tuple[int, int, int]], masking: Masking, most: int) -> list[Piece]:
    """Of (document, first, last) in the order of rows: each at most so long, and within one block of the document."""
    found, row = [], 0
    block = masking.window if masking.window and not masking.causal else None
    for document, first, last in spans:
        while first < last:
            end = min(last, first + most, (first // block + 1) * block if block else last)
            found.append(Piece((document, first // block if block else 0), first, end, row))
            row, first = row + end - first, end
    return found


def longest(masking: Masking, fused: bool) -> int:
    """Tokens of a piece: few enough that its scores stay small, unless a kernel holds none in memory, and a window's
    pieces not much longer than that.
    """
    if masking.window is None or not masking.causal:
        return UNLIMITED if fused else LONGEST
    return max(SHORTEST, min(LONGEST, masking.window))


def pairs(queries: Sequence[Piece], keys: Sequence[Piece], masking: Masking) -> Iterator[Pair]:
    """Those that somebody sees something in."""
    of_document: dict[tuple[int, int], list[Piece]] = {}
    for key in keys:
        of_document.setdefault(key.document, []).append(key)
    for query in queries:
        for key in of_document.get(query.document, ()):
            nearest, farthest = query.first - key.last + 1, query.last - 1 - key.first  # places from a key to a query
            if not masking.causal:
                yield Pair(query.rows, key.rows, query.first - key.first, "all")
            elif farthest >= 0 and (masking.window is None or nearest < masking.window):
                near = masking.window is None or farthest < masking.window  # no key is hidden by the window
                triangle = near and (query.first, query.last) == (key.first, key.last)
                seen: Seen = "all" if near and nearest >= 0 else "triangle" if triangle else "some"
                yield Pair(query.rows, key.rows, query.first - key.first, seen)


def hidden(pair: Pair, masking: Masking, device: torch.device) -> Tensor | None:
    """[queries, keys]: which keys a query does not see; None: it sees all. Causal."""
    if pair.seen == "all":
        return None
    places = torch.arange(length(pair.queries), device=device)[:, None] + pair.ahead
    behind = places - torch.arange(length(pair.keys), device=device)
    return behind < 0 if masking.window is None else (behind < 0) | (behind >= masking.window)
