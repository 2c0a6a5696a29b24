"""Ranks that occur in the same tasks behave alike: looking at one of each kind is exact, and far less work."""

from collections.abc import Iterable

from planner.specs.base import Ranks


def of_same_tasks(sets: Iterable[Ranks]) -> dict[int, int]:
    """Each rank of `sets` → the lowest rank that is in exactly the same of them."""
    memberships: dict[int, list[int]] = {}
    for number, ranks in enumerate(dict.fromkeys(sets)):
        for rank in ranks:
            memberships.setdefault(rank, []).append(number)
    first: dict[tuple[int, ...], int] = {}
    return {rank: first.setdefault(tuple(memberships[rank]), rank) for rank in sorted(memberships)}
