"""Ranks of one pool that belong to no group, each with the seconds for which it stays free.

A group takes some neighbouring ranks of one node, or whole nodes side by side. Free ranks are kept as segments of a
node. Two summary numbers reject most requests that cannot be met without a search.
"""

from typing import NamedTuple

from planner.costs.step.sequences import Pool


class Piece(NamedTuple):
    """Neighbouring free ranks of one node."""

    first: int
    ranks: int  # how many
    left: float  # seconds


class Idle:
    """Free ranks of a pool, as segments of its nodes."""

    def __init__(self, pool: Pool, span: float) -> None:
        end = pool.first + pool.ranks
        firsts = range(pool.first, end, pool.per_node)
        self.per_node = min(pool.per_node, pool.ranks)
        # Ranks of each node, by its first rank.
        self.sizes = {first: min(pool.per_node, end - first) for first in firsts}
        self.pieces = [Piece(first, size, span) for first, size in self.sizes.items()]
        self.look()

    def look(self) -> None:
        """Update the longest time left of any segment, and the ranks of all segments that start a node."""
        self.longest = max((segment.left for segment in self.pieces), default=-1.0)
        self.most = sum(segment.ranks for segment in self.pieces if segment.first in self.sizes)

    def carve(self, degree: int, needed: float) -> Piece | None:
        """Ranks for a group that needs so many seconds, with the time that all have left; None if there are none."""
        if needed > self.longest:
            return None
        if degree > self.per_node:
            return self.cut(self.run(degree, needed), degree) if degree <= self.most else None
        fitting = [segment for segment in self.pieces if segment.left >= needed and segment.ranks >= degree]
        return self.cut([min(fitting, key=lambda p: (p.left, p.ranks, p.first))] if fitting else [], degree)

    def run(self, degree: int, needed: float) -> list[Piece]:
        """Adjacent segments from the first rank of a node, all but the last a whole node; empty if there are none."""
        found: list[Piece] = []
        for segment in sorted(
            segment for segment in self.pieces if segment.left >= needed and segment.first in self.sizes
        ):
            if found and found[-1].first + self.sizes[found[-1].first] != segment.first:
                found = []
            found.append(segment)
            if sum(segment.ranks for segment in found) >= degree:
                return found
            if segment.ranks < self.sizes[segment.first]:
                found = []
        return []

    def cut(self, segments: list[Piece], degree: int) -> Piece | None:
        """Take the first `degree` ranks of adjacent segments; the other ranks stay free."""
        if not segments:
            return None
        for segment in segments:
            self.pieces.remove(segment)
        first, end, last = segments[0].first, segments[0].first + degree, segments[-1]
        if last.first + last.ranks > end:
            self.pieces.append(Piece(end, last.first + last.ranks - end, last.left))
        self.look()
        return Piece(first, degree, min(segment.left for segment in segments))

    def give_back(self, first: int, degree: int, left: float) -> None:
        """Free the ranks of a group that ends, node by node."""
        for node_first, size in self.sizes.items():
            low, high = max(first, node_first), min(first + degree, node_first + size)
            if low < high:
                self.pieces.append(Piece(low, high - low, left))
        self.look()
