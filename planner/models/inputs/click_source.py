"""Synthetic samples of a model with embedding tables: the rows that each looks up, and clicks that these make likely.

How often a row is read follows its table's skew. A row makes clicks more or less likely by a number of its own, and the
tokens of a sample are clicks, drawn with the chance that its rows give: 1 where there is one, else 0.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from planner.models.build import named_generator
from planner.models.inputs.training_items import CPU, SyntheticSamples, uniform_rows
from planner.specs.layers import Module
from planner.specs.tables import Table

STRENGTH = 3.0  # of what rows have to do with clicks: the deviation of the logit is about this
NEAR_ONE = 1e-6  # a skew this near to 1 counts as just below it


class ClickSource(SyntheticSamples):
    """Samples that read embedding tables, drawn by seed and item number."""

    def __init__(self, seed: int, tables: Mapping[str, Table]) -> None:
        super().__init__(seed)
        self.tables = tables

    def rows(self, item: int) -> list[Tensor]:
        """By table: the rows (lookups) int64 that a sample sums."""
        draw = named_generator(CPU, "lookups", self.seed, item)
        more = torch.rand(len(self.tables), generator=draw, dtype=torch.float64).tolist()
        counts = [int(table.pooling + u) for table, u in zip(self.tables.values(), more, strict=True)]
        drawn = torch.rand(sum(counts), generator=draw, dtype=torch.float64).split(counts)  # type: ignore[no-untyped-call]
        return [row_numbers(table, u) for table, u in zip(self.tables.values(), drawn, strict=True)]

    def item(self, spec: Module, item: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Clicks `(n)` of a span of tokens, and the next ones `(n)`."""
        score = sum(float(row_scores(rows, at).sum()) for at, rows in enumerate(self.rows(item)))
        reads = sum(table.pooling for table in self.tables.values())
        chance = torch.tensor(STRENGTH * score * reads**-0.5).sigmoid()
        drawn = uniform_rows(("clicks", self.seed, item), span[0], span[1] + 1, 1)[:, 0]
        clicks = (drawn < chance).long()
        return clicks[:-1], clicks[1:]


def row_numbers(table: Table, u: Tensor) -> Tensor:
    """Rows (n) int64 of a table where uniform numbers u (n) in [0, 1) fall, by Zipf's law with the table's skew."""
    flat = 1.0 - (table.skew if abs(table.skew - 1.0) > NEAR_ONE else 1.0 - NEAR_ONE)
    rows: Tensor = (1.0 + u * ((table.rows + 1.0) ** flat - 1.0)) ** (1.0 / flat) - 1.0
    return rows.long().clamp(max=table.rows - 1)


def row_scores(rows: Tensor, table: int) -> Tensor:
    """What each row (n) of a table adds to the logit of a click: numbers of deviation 1 that look random."""
    scores: Tensor = 2**0.5 * torch.sin(12.9898 * (rows + 1) + 78.233 * (table + 1))
    return scores
