"""The network of a policy while it is trained, and decisions as one batch: candidates of all of them in one array."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from planner.policies import CLIPPED, FEATURES, HIDDEN, LINE, PolicyWeights


class Choice(NamedTuple):
    """A decision between several candidates, and the one that was taken."""

    features: np.ndarray  # (candidates, features), float32
    taken: int


class Batch(NamedTuple):
    """Several decisions."""

    features: Tensor  # (all candidates, features)
    of: Tensor  # (all candidates,) which decision each belongs to
    taken: Tensor  # (decisions,) which of all candidates

    @classmethod
    def of_choices(cls, choices: Sequence[Choice]) -> "Batch":
        counts = torch.tensor([len(choice.features) for choice in choices])
        first = counts.cumsum(0) - counts
        return cls(
            torch.from_numpy(np.concatenate([choice.features for choice in choices])),
            torch.repeat_interleave(torch.arange(len(choices)), counts),
            first + torch.tensor([choice.taken for choice in choices]),
        )


class ScoreNetwork(nn.Module):
    """Scores of candidates, each by itself: as `PolicyWeights.scores`, without its line."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        """Features are scaled by what they are in these choices."""
        super().__init__()
        self.first, self.second = nn.Linear(len(FEATURES), HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.last = nn.Linear(HIDDEN, 1, bias=False)
        seen = torch.from_numpy(np.concatenate([choice.features for choice in choices]))
        self.idle = any(choice.features[choice.taken, 0] for choice in choices)
        self.seen = {"mean": seen.mean(0), "spread": seen.std(0) + 1e-6, "least": seen.amin(0), "most": seen.amax(0)}

    def forward(self, features: Tensor) -> Tensor:
        hidden = ((features - self.seen["mean"]) / self.seen["spread"]).clamp(-CLIPPED, CLIPPED)
        hidden = torch.relu(self.second(torch.relu(self.first(hidden))))
        scores: Tensor = self.last(hidden).squeeze(-1)
        return scores

    def log_chances(self, batch: Batch) -> Tensor:
        """Of the candidates that were taken: (decisions,)."""
        scores, decisions = self(batch.features), len(batch.taken)
        most = torch.full((decisions,), -torch.inf).scatter_reduce(0, batch.of, scores.detach(), "amax")
        total = torch.zeros(decisions).index_add(0, batch.of, (scores - most[batch.of]).exp())
        chances: Tensor = scores[batch.taken] - most - total.log()
        return chances

    def weights(self, teacher: str, kinds: tuple[str, ...]) -> PolicyWeights:
        """As they are stored."""
        tensors = {
            "w1": self.first.weight,
            "b1": self.first.bias,
            "w2": self.second.weight,
            "b2": self.second.bias,
            "w3": self.last.weight[0],
            "line": torch.zeros(LINE),
            **self.seen,
        }
        return PolicyWeights(
            {name: t.detach().double().numpy() for name, t in tensors.items()}, teacher, kinds, self.idle
        )
