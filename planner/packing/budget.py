"""How much an effort may do, counted in sequences placed: the same on any machine."""

from typing import NamedTuple

FILL = 200  # sequences: a fill takes as long as placing these, however few it places


class Budget(NamedTuple):
    """Of a search, by effort."""

    placed: dict[int, int]  # sequences
    fewest: dict[int, int]  # fills, however many sequences each places

    def fills(self, effort: int, sequences: int) -> int:
        """How often an effort may fill."""
        return max(self.fewest[effort], self.placed[effort] // max(sequences, FILL))
