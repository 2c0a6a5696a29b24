"""Embedding and cross-entropy over a vocabulary that is sharded over a tensor-parallel block: each rank has the rows of
some words (arXiv 1909.08053, section 3). Of the logits, only sums over words are communicated.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planner.models.batch import IGNORED
from planner.models.sharding import EqualShard, ParameterSplit
from planner.models.tensor_parallel import NO_TENSOR_PARALLEL, TensorParallel


class VocabularyEmbedding(nn.Embedding):
    """This rank's rows of an embedding table `(words, width)`."""

    def __init__(self, words: int, width: int, dtype: torch.dtype, part: EqualShard) -> None:
        super().__init__(part.size(words), width, dtype=dtype)
        self.first_word, self.splits = part.span(words)[0], {"weight": (ParameterSplit(0, part, "tp"),)}

    def forward(self, input: Tensor, tensor: TensorParallel = NO_TENSOR_PARALLEL) -> Tensor:
        """Embeddings `(tokens, width)` of words `(tokens)`; where the table is sharded, this rank's rows
        `(local_tokens, width)`.
        """
        if tensor is NO_TENSOR_PARALLEL:
            return super().forward(input)
        index, absent = local_word_indices(input, self.first_word, self.num_embeddings)
        return tensor.reduce_scatter(super().forward(index).masked_fill(absent[:, None], 0))


def local_word_indices(words: Tensor, start: int, count: int) -> tuple[Tensor, Tensor]:
    """The indices of words (any shape) among the `count` from `start` on, and a mask of those that are not among them,
    whose index is 0.
    """
    index = words - start
    absent = (index < 0) | (index >= count)
    return index.masked_fill(absent, 0), absent


def sharded_cross_entropy(logits: Tensor, targets: Tensor, tensor: TensorParallel, part: EqualShard) -> Tensor:
    """The cross-entropy of each token `(tokens)`, from this rank's logits `(tokens, words / tp)`, in float32 or better.
    `targets` is `(tokens)`.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if tensor is NO_TENSOR_PARALLEL:
        return F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")
    words = logits.shape[1]
    index, absent = local_word_indices(targets, part.index * words, words)
    logits = logits - tensor.all_reduce_max(logits.detach().amax(1))[:, None]
    own = logits.gather(1, index[:, None])[:, 0].masked_fill(absent, 0)
    summed, target = tensor.all_reduce_sum(torch.stack([logits.exp().sum(1), own]))
    losses: Tensor = (summed.log() - target).masked_fill(targets == IGNORED, 0)
    return losses
