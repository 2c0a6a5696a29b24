"""Which queries attend to which keys, as pairs of tiles of documents: hidden tiles are skipped before any arithmetic.

A causal window slides: a token at position p attends to keys p - window + 1 to p. A window without causality cuts a
document into blocks of that many tokens, which tiles never cross: each block is then like a document of its own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

LONGEST, SHORTEST, UNLIMITED = 512, 64, 2**62  # tokens of a tile


@dataclass(frozen=True, slots=True)
class GridWindows:
    """Windows of two dimensions over packed images: tokens attend to those of their window, which are not consecutive.

    (Its tensors are whole numbers, which no cast of a module's arguments changes.)
    """

    numbers: Tensor  # (tokens) in host memory: the number of each token's window, from 0, rising from image to image
    starts: Tensor  # (documents + 1) in host memory: first token of each image; then tokens
    order: Tensor  # (tokens) which token is at each place where windows are consecutive
    places: Tensor  # (tokens) the place of each token there
    cu_seqlens: Tensor  # (windows + 1) int32 in host memory: first place of each window; then tokens

    def runs(self, document: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield, of the tokens `first` to `last` of an image, the windows of consecutive ones: number and tokens."""
        start = int(self.starts[document])
        each = torch.unique_consecutive(self.numbers[start + first : start + last], return_counts=True)
        yield from zip(*(found.tolist() for found in each), strict=True)


@dataclass(frozen=True, slots=True)
class Masking:
    """Which tokens of a document a token attends to."""

    causal: bool
    window: int | None = None  # tokens attended to, including the token itself; None: no limit
    grid: GridWindows | None = None  # in place of a window


class Tile(NamedTuple):
    """A tile: consecutive tokens of one document, and the rows of their rank in which they are."""

    document: tuple[int, int]  # and the number of its block, where a window without causality cuts it
    first: int
    last: int  # exclusive
    row: int  # of its first token

    @property
    def rows(self) -> slice:
        """The rows of this tile on its rank."""
        return slice(self.row, self.row + self.last - self.first)


Visibility = Literal["all", "triangle", "some"]


class TilePair(NamedTuple):
    """Two tiles of which at least one query attends to at least one key."""

    queries: slice  # rows on the rank of the queries
    keys: slice  # rows on the rank of the keys
    query_offset: int  # position of the first query minus that of the first key
    visibility: Visibility  # all: every key; triangle: causal over equal tiles; some: a mask is needed


def slice_length(rows: slice) -> int:
    """Number of rows of a slice."""
    return int(rows.stop) - int(rows.start)


def tiles_of(spans: Iterable[tuple[int, int, int]], masking: Masking, max_tokens: int) -> list[Tile]:
    """Tiles of spans (document, first, last) in the order of rows: of at most `max_tokens`, within one block."""
    tiles: list[Tile] = []
    row = 0
    if masking.grid is not None:
        for document, first, last in spans:
            for number, tokens in masking.grid.runs(document, first, last):
                tiles.append(Tile((document, number), first, first + tokens, row))
                row, first = row + tokens, first + tokens
        return tiles
    block = masking.window if masking.window and not masking.causal else None
    for document, first, last in spans:
        while first < last:
            end = min(last, first + max_tokens, (first // block + 1) * block if block else last)
            tiles.append(Tile((document, first // block if block else 0), first, end, row))
            row, first = row + end - first, end
    return tiles


def max_tile_tokens(masking: Masking, fused: bool) -> int:
    """Largest number of tokens of a tile. Without a fused kernel its scores are in memory, so tiles are small; those of
    a sliding window are not much longer than the window.
    """
    if masking.window is None or not masking.causal:
        return UNLIMITED if fused else LONGEST
    return max(SHORTEST, min(LONGEST, masking.window))


def visible_pairs(queries: Sequence[Tile], keys: Sequence[Tile], masking: Masking) -> Iterator[TilePair]:
    """Pairs of tiles in which some query attends to some key."""
    of_document: dict[tuple[int, int], list[Tile]] = {}
    for key in keys:
        of_document.setdefault(key.document, []).append(key)
    for query in queries:
        for key in of_document.get(query.document, ()):
            nearest, farthest = (
                query.first - key.last + 1,
                query.last - 1 - key.first,
            )  # distances from a key to a query
            if not masking.causal:
                yield TilePair(query.rows, key.rows, query.first - key.first, "all")
            elif farthest >= 0 and (masking.window is None or nearest < masking.window):
                near = masking.window is None or farthest < masking.window  # no key is hidden by the window
                triangle = near and (query.first, query.last) == (key.first, key.last)
                seen: Visibility = "all" if near and nearest >= 0 else "triangle" if triangle else "some"
                yield TilePair(query.rows, key.rows, query.first - key.first, seen)


def hidden_keys(pair: TilePair, masking: Masking, device: torch.device) -> Tensor | None:
    """The mask `(queries, keys)` of keys that a query does not attend to; None where it attends to all."""
    if pair.visibility == "all":
        return None
    positions = torch.arange(slice_length(pair.queries), device=device)[:, None] + pair.query_offset
    distances = positions - torch.arange(slice_length(pair.keys), device=device)
    return distances < 0 if masking.window is None else (distances < 0) | (distances >= masking.window)
