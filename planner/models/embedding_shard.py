"""A shard of an embedding table: sums of its rows, their gradients, and updates of the rows that were read.

Row-wise AdaGrad keeps one number v for a row of a shard, and with g, a row's gradient, and learning rate η

    v += mean(g²),   row −= η · g / √(v / c + ε)

AdaGrad the same for each element, SGD without v. Where M groups of ranks have copies that are averaged, each sees a
share 1 / M of the samples: v grows about M times as fast, which c = M sets right (arXiv 2508.03854).
"""

import torch
from torch import Tensor

from planner.models.inputs.training_items import uniform_rows
from planner.plan.embeddings import TableShard
from planner.specs.tables import Table

EPSILON = 1e-12
STATES = {"rowwise_adagrad": 1, "adagrad": None, "sgd": 0}  # numbers of a row; None: one for each element


class EmbeddingShard:
    """Rows and columns of one table, `weight` (rows, columns), with the optimizer's `state` of them."""

    def __init__(self, name: str, table: Table, shard: TableShard, seed: int, of: Tensor) -> None:
        """`of`: a tensor with the dtype and device of the weights, which are uniform with variance 1 / 3 dim."""
        self.shard, self.optimizer = shard, table.optimizer
        last = shard.first_column + shard.columns
        drawn = uniform_rows(("table", seed, name), shard.first_row, shard.first_row + shard.rows, table.dim)
        own = (2 * drawn - 1)[:, shard.first_column : last] * table.dim**-0.5
        self.weight: Tensor = own.contiguous().to(of)
        states = STATES[table.optimizer]
        self.state = self.weight.new_zeros(shard.rows, shard.columns if states is None else states)
        self.lookups: Tensor | None = None  # of the step
        self.gradient: tuple[Tensor, Tensor] | None = None  # rows that were read, and their gradients

    def sums(self, lookups: Tensor, count: int) -> Tensor:
        """The sum of rows for each of `count` samples, (count, columns). `lookups`, (lookups, 2): a sample, and a row
        that it reads, counted from the shard's first.
        """
        self.lookups = lookups
        sums = self.weight.new_zeros(count, self.shard.columns)
        sums.index_add_(0, lookups[:, 0], self.weight[lookups[:, 1]])
        return sums

    def add_gradient(self, of_sums: Tensor) -> None:
        """Keep the gradient of the rows that were read, from that of the sums (count, columns)."""
        assert self.lookups is not None, "sums come first"
        rows, place = torch.unique(self.lookups[:, 1], return_inverse=True)
        values = of_sums.new_zeros(len(rows), self.shard.columns)
        self.gradient = rows, values.index_add_(0, place, of_sums[self.lookups[:, 0]])

    def whole_gradient(self) -> Tensor:
        """The gradient of all rows (rows, columns)."""
        assert self.gradient, "a backward comes first"
        rows, values = self.gradient
        return torch.zeros_like(self.weight).index_add_(0, rows, values)

    def update(self, rate: float, times: float, c: float) -> None:
        """Update the rows that were read; `times`: by which gradients are multiplied first."""
        assert self.gradient, "a backward comes first"
        rows, values = self.gradient
        values = times * values
        if self.optimizer != "sgd":
            squares = values.square()
            squares = squares.mean(1, keepdim=True) if self.optimizer == "rowwise_adagrad" else squares
            self.state.index_add_(0, rows, squares)
            values = values / (self.state[rows] / c + EPSILON).sqrt()
        self.weight.index_add_(0, rows, values, alpha=-rate)
