"""Ranks of one pool that belong to no group, each with the seconds for which it stays free.

A group takes some neighbouring ranks of one node, or whole nodes side by side. Free ranks are kept as segments of a
node. Two summary numbers reject most requests that cannot be met without a search.
"""

from typing import NamedTuple

from planner.costs import RankPool


class RankSegment(NamedTuple):
    """Neighbouring free ranks of one node."""

    first: int
    ranks: int  # how many
    seconds_left: float  # seconds


class FreeRanks:
    """Free ranks of a pool, as segments of its nodes."""

    def __init__(self, pool: RankPool, span: float) -> None:
        end = pool.first + pool.ranks
        firsts = range(pool.first, end, pool.per_node)
        self.per_node = min(pool.per_node, pool.ranks)
        # Ranks of each node, by its first rank.
        self.node_sizes = {first: min(pool.per_node, end - first) for first in firsts}
        self.segments = [RankSegment(first, size, span) for first, size in self.node_sizes.items()]
        self.update_summary()

    def update_summary(self) -> None:
        """Update the longest time left of any segment, and the ranks of all segments that start a node."""
        self.longest_left = max((segment.seconds_left for segment in self.segments), default=-1.0)
        self.ranks_at_node_starts = sum(segment.ranks for segment in self.segments if segment.first in self.node_sizes)

    def allocate(self, degree: int, needed: float) -> RankSegment | None:
        """Ranks for a group that needs so many seconds, with the time that all have left; None if there are none."""
        if needed > self.longest_left:
            return None
        if degree > self.per_node:
            return (
                self.take_first(self.adjacent_segments(degree, needed), degree)
                if degree <= self.ranks_at_node_starts
                else None
            )
        fitting = [segment for segment in self.segments if segment.seconds_left >= needed and segment.ranks >= degree]
        return self.take_first(
            [min(fitting, key=lambda p: (p.seconds_left, p.ranks, p.first))] if fitting else [], degree
        )

    def adjacent_segments(self, degree: int, needed: float) -> list[RankSegment]:
        """Adjacent segments from the first rank of a node, all but the last a whole node; empty if there are none."""
        found: list[RankSegment] = []
        for segment in sorted(
            segment for segment in self.segments if segment.seconds_left >= needed and segment.first in self.node_sizes
        ):
            if found and found[-1].first + self.node_sizes[found[-1].first] != segment.first:
                found = []
            found.append(segment)
            if sum(segment.ranks for segment in found) >= degree:
                return found
            if segment.ranks < self.node_sizes[segment.first]:
                found = []
        return []

    def take_first(self, segments: list[RankSegment], degree: int) -> RankSegment | None:
        """Take the first `degree` ranks of adjacent segments; the other ranks stay free."""
        if not segments:
            return None
        for segment in segments:
            self.segments.remove(segment)
        first, end, last = segments[0].first, segments[0].first + degree, segments[-1]
        if last.first + last.ranks > end:
            self.segments.append(RankSegment(end, last.first + last.ranks - end, last.seconds_left))
        self.update_summary()
        return RankSegment(first, degree, min(segment.seconds_left for segment in segments))

    def release(self, first: int, degree: int, left: float) -> None:
        """Free the ranks of a group that ends, node by node."""
        for node_first, size in self.node_sizes.items():
            low, high = max(first, node_first), min(first + degree, node_first + size)
            if low < high:
                self.segments.append(RankSegment(low, high - low, left))
        self.update_summary()
