"""Embedding tables in one process, whole, with torch's own gradients."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from planner.models import EmbeddingShard
from planner.models.inputs import ClickSource
from planner.plan.embeddings import TableShard


class TableReference:
    """All tables of a source, with the weights that shards of them begin with; `of` has their dtype and device."""

    def __init__(self, source: ClickSource, of: Tensor) -> None:
        self.source = source
        self.weights: dict[str, Tensor] = {}
        for name, table in source.tables.items():
            whole = TableShard(0, 0, table.rows, 0, table.dim)
            self.weights[name] = EmbeddingShard(name, table, whole, source.seed, of).weight.requires_grad_()

    def copy_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Take over these weights."""
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(weights[name])

    def begin_step(self) -> None:
        """Forget gradients."""
        for weight in self.weights.values():
            weight.grad = None

    def sums(self, items: Sequence[int]) -> Tensor:
        """Sums of all tables for each of these samples, (samples, width)."""
        read = [zip(self.weights.values(), self.source.rows(item), strict=True) for item in items]
        return torch.stack([torch.cat([weight[rows].sum(0) for weight, rows in each]) for each in read])

    def gradients(self) -> dict[str, Tensor]:
        """The gradient of each table."""
        return {name: weight.grad.cpu() for name, weight in self.weights.items() if weight.grad is not None}
