"""Embedding and cross entropy over a vocabulary that the ranks of a tensor-parallel block part: each has the rows of
some words (arXiv 1909.08053, section 3). Of the logits only sums over the words travel.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planner.models.data import IGNORED
from planner.models.held import Part, Split
from planner.models.tensor import ALONE, Tensors


class Vocabulary(nn.Embedding):
    """This rank's rows of a table [words, width]: its part of the words."""

    def __init__(self, words: int, width: int, dtype: torch.dtype, part: Part) -> None:
        super().__init__(part.size(words), width, dtype=dtype)
        self.start, self.splits = part.span(words)[0], {"weight": (Split(0, part, "tp"),)}

    def forward(self, input: Tensor, tensor: Tensors = ALONE) -> Tensor:
        """Words [t] to [t, width], or, of all ranks' tables, to this rank's rows of it [s, width]."""
        if tensor is ALONE:
            return super().forward(input)
        place, absent = placed(input, self.start, self.num_embeddings)
        return tensor.scatter(super().forward(place).masked_fill(absent[:, None], 0))


def placed(words: Tensor, start: int, count: int) -> tuple[Tensor, Tensor]:
    """Where words are among `count` of them from `start` on, and which are not: these are said to be at 0."""
    place = words - start
    absent = (place < 0) | (place >= count)
    return place.masked_fill(absent, 0), absent


def cross_entropy(logits: Tensor, targets: Tensor, tensor: Tensors, part: Part) -> Tensor:
    """Of each token [t], from its logits [t, words / ranks] of this rank's words; in float32 or better."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if tensor is ALONE:
        return F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")
    words = logits.shape[1]
    place, absent = placed(targets, part.index * words, words)
    logits = logits - tensor.largest(logits.detach().amax(1))[:, None]
    own = logits.gather(1, place[:, None])[:, 0].masked_fill(absent, 0)
    summed, target = tensor.total(torch.stack([logits.exp().sum(1), own]))
    losses: Tensor = (summed.log() - target).masked_fill(targets == IGNORED, 0)
    return losses
