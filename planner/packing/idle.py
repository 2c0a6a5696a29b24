"""Ranks of one pool without a group, each free for so long; a group takes some of a node's, or nodes side by side.

What is free is kept in pieces of a node. Two numbers say at once that a group cannot lie anywhere: most asks fail so.
"""

from typing import NamedTuple

from planner.costs.step.sequences import Pool


class Piece(NamedTuple):
    """Neighbouring ranks of one node."""

    first: int
    ranks: int
    left: float  # seconds


class Idle:
    """The free ranks of a pool."""

    def __init__(self, pool: Pool, span: float) -> None:
        end = pool.first + pool.ranks
        firsts = range(pool.first, end, pool.per_node)
        self.per_node = min(pool.per_node, pool.ranks)
        self.sizes = {first: min(pool.per_node, end - first) for first in firsts}  # of each node, by its first rank
        self.pieces = [Piece(first, size, span) for first, size in self.sizes.items()]
        self.look()

    def look(self) -> None:
        """The longest time that a piece has left, and how many ranks those that begin a node have."""
        self.longest = max((piece.left for piece in self.pieces), default=-1.0)
        self.most = sum(piece.ranks for piece in self.pieces if piece.first in self.sizes)

    def carve(self, degree: int, needed: float) -> Piece | None:
        """Ranks for a group that needs so many seconds, with the time that all of them have left."""
        if needed > self.longest:
            return None
        if degree > self.per_node:
            return self.cut(self.run(degree, needed), degree) if degree <= self.most else None
        fitting = [piece for piece in self.pieces if piece.left >= needed and piece.ranks >= degree]
        return self.cut([min(fitting, key=lambda p: (p.left, p.ranks, p.first))] if fitting else [], degree)

    def run(self, degree: int, needed: float) -> list[Piece]:
        """Pieces side by side from the first rank of a node on, all but the last a whole node; or none."""
        found: list[Piece] = []
        for piece in sorted(piece for piece in self.pieces if piece.left >= needed and piece.first in self.sizes):
            if found and found[-1].first + self.sizes[found[-1].first] != piece.first:
                found = []
            found.append(piece)
            if sum(piece.ranks for piece in found) >= degree:
                return found
            if piece.ranks < self.sizes[piece.first]:
                found = []
        return []

    def cut(self, run: list[Piece], degree: int) -> Piece | None:
        """Take the first `degree` ranks of a run; the others stay free."""
        if not run:
            return None
        for piece in run:
            self.pieces.remove(piece)
        first, end, last = run[0].first, run[0].first + degree, run[-1]
        if last.first + last.ranks > end:
            self.pieces.append(Piece(end, last.first + last.ranks - end, last.left))
        self.look()
        return Piece(first, degree, min(piece.left for piece in run))

    def give_back(self, first: int, degree: int, left: float) -> None:
        """Ranks of a group that ends are free, node by node."""
        for begin, size in self.sizes.items():
            low, high = max(first, begin), min(first + degree, begin + size)
            if low < high:
                self.pieces.append(Piece(low, high - low, left))
        self.look()
