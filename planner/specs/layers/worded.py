"""What kinds that read words have in common: a table to look them up in, and positions of several sorts."""

from typing import TYPE_CHECKING

from planner.specs.layers.stack import Activation, Stack


class Worded(Stack):
    """The answers of a module over words."""

    if TYPE_CHECKING:  # fields of each such kind, which each says in the order of its files
        vocab: int
        positions: str
        max_positions: int
        buckets: int
        activation: Activation | None

    @property
    def words(self) -> int:
        return self.vocab

    @property
    def relative_buckets(self) -> int:
        return self.buckets

    @property
    def longest(self) -> int | None:
        return self.max_positions if self.positions == "learned" else None

    @property
    def activated(self) -> Activation:
        return self.activation or super().activated
