"""Ranks that occur in exactly the same tasks behave identically, so one of each kind represents the others exactly."""

from collections.abc import Iterable

from planner.specs.base import Ranks


def representative_ranks(sets: Iterable[Ranks]) -> dict[int, int]:
    """Map each rank of `sets` to the lowest rank that is in exactly the same ones."""
    memberships: dict[int, list[int]] = {}
    for number, ranks in enumerate(dict.fromkeys(sets)):
        for rank in ranks:
            memberships.setdefault(rank, []).append(number)
    first: dict[tuple[int, ...], int] = {}
    return {rank: first.setdefault(tuple(memberships[rank]), rank) for rank in sorted(memberships)}
