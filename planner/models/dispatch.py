"""How tokens come to their experts and back. The models know only this protocol; here is the rank that has them all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# Rows [m, hidden] that lie sorted by expert, and how many are of each expert here [E], to as many rows [m, hidden].
Compute = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Choice:
    """Of s tokens the k experts each, of E in all."""

    experts: Tensor  # [s, k] int64; E: a choice that nobody works on
    weights: Tensor  # [s, k] of the experts' outputs in their sum
    among: int  # E
    dropless: bool = True  # whether every choice is worked on

    @property
    def topk(self) -> int:
        return self.experts.shape[1]

    def counts(self) -> Tensor:
        """[E] int64: choices of each expert."""
        found = torch.zeros(self.among + 1, dtype=torch.int64, device=self.experts.device)
        flat = self.experts.flatten()
        return found.scatter_add_(0, flat, torch.ones_like(flat))[: self.among]

    def order(self) -> Tensor:
        """[s·k]: all choices sorted by expert, those of one in the order of tokens; the ones without come last.

        A choice's number is that of its token times k, and its place among those of the token.
        """
        return self.experts.flatten().argsort(stable=True)


class Dispatch(Protocol):
    """The ranks that have the experts of a layer together, and the stage whose micro-batch they work on."""

    def run(self, x: Tensor, choice: Choice, compute: Compute) -> Tensor:
        """x [s, hidden] of this rank through the experts of its choice, wherever they are, to their weighted sums
        [s, hidden]. Every rank calls it in every micro-batch, also with no tokens. `compute`: the experts held here.
        """

    def total(self, counts: Tensor) -> Tensor:
        """The sum over all ranks of the stage, without a gradient."""


class Here:
    """One rank that holds all experts, and all tokens of the micro-batch."""

    def run(self, x: Tensor, choice: Choice, compute: Compute) -> Tensor:
        counts, order = choice.counts(), choice.order()
        if not choice.dropless:
            order = order[: int(counts.sum())]
        y = compute(x[order // choice.topk], counts)
        return combined(y, order, choice)

    def total(self, counts: Tensor) -> Tensor:
        return counts


HERE = Here()


def combined(y: Tensor, order: Tensor, choice: Choice) -> Tensor:
    """Outputs y [m, hidden] of the choices `order` [m] to the weighted sum of each token's, [s, hidden].

    Through a table of all choices, [s, k, hidden], so that each token adds up in the order of its own: by expert score,
    whoever worked on it.
    """
    table = y.new_zeros(choice.experts.numel(), y.shape[1]).index_copy(0, order, y)
    weights = choice.weights.to(y.dtype).unsqueeze(1)  # [s, 1, k]
    return (weights @ table.view(*choice.experts.shape, y.shape[1])).squeeze(1)
