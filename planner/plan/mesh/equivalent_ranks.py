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


class EquivalentRanks:
    """Of the ranks of some tasks, one of each kind. Sets of ranks are known by their ids, as tasks share them: to hash
    many ranks for each task would take longer than all else.
    """

    def __init__(self, sets: Iterable[Ranks]) -> None:
        self.sets = {id(ranks): ranks for ranks in sets}  # kept here, so that no other one gets an id
        self.representative = representative_ranks(self.sets.values())
        self.kinds = {key: self.among(ranks) for key, ranks in self.sets.items()}

    def of(self, ranks: Ranks) -> tuple[int, ...]:
        """Return one rank of each kind in one of these sets, given as the same object."""
        return self.kinds[id(ranks)]

    def among(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Return one rank of each kind among any ranks; of those in none of the sets none."""
        found = self.representative
        return tuple(dict.fromkeys(found[rank] for rank in ranks if rank in found))
