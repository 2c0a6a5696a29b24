"""How tokens are sent to their experts and back: the protocol that models know, and a rank with all experts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# From rows (rows, hidden) sorted by expert and the number of each local expert's rows (experts) to (rows, hidden).
ExpertFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class ExpertChoice:
    """The experts that the router chose for each token."""

    experts: Tensor  # (tokens, topk) int64; the number of experts marks a dropped choice
    weights: Tensor  # (tokens, topk): of the experts' outputs in their sum
    expert_count: int  # number of experts
    dropless: bool = True  # whether no choice was dropped

    @property
    def topk(self) -> int:
        """Number of experts that each token chooses."""
        return self.experts.shape[1]

    def counts(self) -> Tensor:
        """Number of choices of each expert, `(experts)` int64."""
        counts = torch.zeros(self.expert_count + 1, dtype=torch.int64, device=self.experts.device)
        flat = self.experts.flatten()
        return counts.scatter_add_(0, flat, torch.ones_like(flat))[: self.expert_count]

    def sorted_by_expert(self) -> Tensor:
        """All choices `(tokens * topk)` sorted by expert, then by token; dropped ones come last.

        The number of a choice is that of its token times topk, plus its index among the token's choices.
        """
        return self.experts.flatten().argsort(stable=True)


class TokenDispatcher(Protocol):
    """The ranks that hold the experts of a layer, and the stage whose micro-batch they compute."""

    def dispatch(self, x: Tensor, choice: ExpertChoice, compute: ExpertFunction) -> Tensor:
        """Send x `(tokens, hidden)` of this rank through the chosen experts, on whatever rank, and combine their
        weighted outputs, `(tokens, hidden)`. Every rank calls it in every micro-batch, also without tokens. `compute`
        applies the local experts.
        """

    def all_reduce_counts(self, counts: Tensor) -> Tensor:
        """The sum of counts (any shape) over all ranks of the stage, without a gradient."""


class LocalDispatcher:
    """One rank that holds all experts, and all tokens of the micro-batch."""

    def dispatch(self, x: Tensor, choice: ExpertChoice, compute: ExpertFunction) -> Tensor:
        """Send x `(tokens, hidden)` through the experts of its choice to the same shape."""
        counts, order = choice.counts(), choice.sorted_by_expert()
        if not choice.dropless:
            order = order[: int(counts.sum())]
        y = compute(x[order // choice.topk], counts)
        return combine_outputs(y, order, choice)

    def all_reduce_counts(self, counts: Tensor) -> Tensor:
        """The counts (any shape) themselves: there are no other ranks."""
        return counts


LOCAL_DISPATCHER = LocalDispatcher()


def combine_outputs(y: Tensor, order: Tensor, choice: ExpertChoice) -> Tensor:
    """Combine outputs y `(rows, hidden)` of the choices `order` `(rows)` into each token's weighted sum, `(tokens,
    hidden)`.

    The outputs are scattered into a table `(tokens, topk, hidden)` first, so that a token's sum has the same order (by
    expert score) wherever its experts were computed.
    """
    table = y.new_zeros(choice.experts.numel(), y.shape[1]).index_copy(0, order, y)
    weights = choice.weights.to(y.dtype).unsqueeze(1)  # (tokens, 1, topk)
    return (weights @ table.view(*choice.experts.shape, y.shape[1])).squeeze(1)
