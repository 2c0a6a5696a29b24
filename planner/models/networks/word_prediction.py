"""A module with a word embedding, which may end in the summed cross-entropy of words.

The ranks of a tensor-parallel block share the vocabulary: each has the rows of some words (arXiv 1909.08053, section
3), and of the logits only sums over words are communicated. A vocabulary that tp does not divide is replicated, and
each rank applies it to its own rows.
"""

from abc import abstractmethod
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from planner.models.autograd.deferred_weights import deferring_weight_gradients
from planner.models.batch import IGNORED, Batch
from planner.models.networks.network import Network
from planner.models.sharding import FULL_MODULE, EqualShard, ModuleShard, ParameterSplit
from planner.models.tensor_parallel import NO_TENSOR_PARALLEL, TensorParallel
from planner.specs.framework.memory_coefficients import RUNTIME_LOGITS_AT_ONCE
from planner.specs.layers import Module


class WordPredictionNetwork(Network):
    """A network with a word embedding."""

    def __init__(self, spec: Module, dtype: torch.dtype, shard: ModuleShard = FULL_MODULE) -> None:
        super().__init__(spec, dtype, shard)
        self.word_shard = shard.tp_shard(spec.input_vocabulary)  # of the embedding
        self.vocabulary_shard = shard.tp_shard(spec.output_vocabulary or spec.input_vocabulary)  # of the head
        if not spec.borrows_embedding and (self.has_first_layer or (spec.ties_head and self.has_last_layer)):
            self.embedding = VocabularyEmbedding(spec.input_vocabulary, spec.hidden, dtype, self.word_shard)
        words = self.vocabulary_shard.size(spec.input_vocabulary)
        self.loss_tokens = max(1, RUNTIME_LOGITS_AT_ONCE // words)  # whose logits are in memory at a time

    @abstractmethod
    def logits(self, x: Tensor) -> Tensor:
        """Logits `(tokens, words / tp)` of this rank's words, from the head's input x `(tokens, hidden)`."""

    def embed_words(self, batch: Batch) -> Tensor:
        """Embeddings `(local_tokens, hidden)` of the batch's words."""
        words = self.local_words(batch, batch.inputs, self.word_shard)
        return self.embedding(words, batch.tensor_parallel_for(self.word_shard))  # type: ignore[no-any-return]

    def local_words(self, batch: Batch, of_block: Tensor, part: EqualShard) -> Tensor:
        """The words that this rank looks up: the block's `(tokens)`, or its own `(local_tokens)` of a whole table."""
        return of_block if part.count > 1 else batch.tensor_parallel.local_rows(of_block)

    def summed_loss(self, x: Tensor, batch: Batch) -> Tensor:
        """The weighted sum (scalar) of the cross-entropy of this rank's rows x `(local_tokens, hidden)`, in chunks;
        where there are several, backward recomputes the logits of each.
        """
        part = self.vocabulary_shard
        tensor, targets = batch.tensor_parallel_for(part), self.local_words(batch, batch.targets, part)
        x = tensor.all_gather(x)
        chunks = list(zip(*(torch.split(y, self.loss_tokens) for y in (x, targets)), strict=True))
        if len(chunks) == 1:
            return batch.weighted_sum(tensor.local_rows(self._losses(tensor, *chunks[0])))
        run = partial(checkpoint, self._losses, tensor, use_reentrant=False, preserve_rng_state=False)
        with deferring_weight_gradients(None):  # W would need the gradients of all logits at once
            return batch.weighted_sum(tensor.local_rows(torch.cat([run(*chunk) for chunk in chunks])))

    def _losses(self, tensor: TensorParallel, x: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy of each token `(tokens)`, from x `(tokens, hidden)` and targets `(tokens)`."""
        return sharded_cross_entropy(self.logits(x), targets, tensor, self.vocabulary_shard)


class VocabularyEmbedding(nn.Embedding):
    """This rank's rows of an embedding table `(words, width)`."""

    def __init__(self, words: int, width: int, dtype: torch.dtype, part: EqualShard) -> None:
        super().__init__(part.size(words), width, dtype=dtype)
        self.first_word, self.splits = part.span(words)[0], {"weight": (ParameterSplit(0, part, "tp"),)}

    def forward(self, input: Tensor, tensor: TensorParallel = NO_TENSOR_PARALLEL) -> Tensor:
        """Embeddings `(tokens, width)` of words `(tokens)`; of a sharded table, rows `(local_tokens, width)`."""
        if tensor is NO_TENSOR_PARALLEL:
            return super().forward(input)
        index, absent = local_word_indices(input, self.first_word, self.num_embeddings)
        return tensor.reduce_scatter(super().forward(index).masked_fill(absent[:, None], 0))


def local_word_indices(words: Tensor, start: int, count: int) -> tuple[Tensor, Tensor]:
    """The indices of words (any shape) among the `count` from `start` on; 0, and masked, where they are not."""
    index = words - start
    absent = (index < 0) | (index >= count)
    return index.masked_fill(absent, 0), absent


def sharded_cross_entropy(logits: Tensor, targets: Tensor, tensor: TensorParallel, part: EqualShard) -> Tensor:
    """The cross-entropy `(tokens)` of this rank's logits `(tokens, words / tp)` and of targets `(tokens)`."""
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
