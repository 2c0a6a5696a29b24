"""How much work an effort level allows, counted in sequences placed: the same on any machine."""

from typing import NamedTuple

MIN_SEQUENCES_PER_FILL = 200  # sequences: a fill costs at least as much as placing this many


class FillBudget(NamedTuple):
    """Work limits of a search, by effort level."""

    sequences_placed: dict[int, int]  # sequences
    min_fills: dict[int, int]  # fills that are always allowed, however many sequences each places

    def fills(self, effort: int, sequences: int) -> int:
        """Number of fills that an effort level allows for so many sequences."""
        return max(self.min_fills[effort], self.sequences_placed[effort] // max(sequences, MIN_SEQUENCES_PER_FILL))
