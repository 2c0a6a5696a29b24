"""A module with a word embedding, which may end in the summed cross-entropy of words.

The ranks of a tensor-parallel block share the vocabulary. One that tp does not divide is replicated, and each rank
applies it to its own rows.
"""

from abc import abstractmethod
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from planner.models.batch import Batch
from planner.models.deferred import deferring
from planner.models.held import WHOLE_MODULE, Held
from planner.models.network import Network
from planner.models.tensor import Tensors
from planner.models.vocabulary import Vocabulary, cross_entropy
from planner.specs.layers import Module

MAX_LOGITS = 2**27  # at a time: 512 MiB in float32, plus a copy in a narrower dtype and their gradient


class PredictingNetwork(Network):
    """A network with a word embedding."""

    def __init__(self, spec: Module, dtype: torch.dtype, shard: Held = WHOLE_MODULE) -> None:
        super().__init__(spec, dtype, shard)
        self.part = shard.part(spec.words)
        self.lent: tuple[Vocabulary, ...] = ()  # in a tuple, so that it adds no parameters to this module
        if not spec.borrows and (self.first or (spec.ties and self.last)):
            self.embedding = Vocabulary(spec.words, spec.hidden, dtype, self.part)
        self.loss_tokens = max(
            1, MAX_LOGITS // self.part.size(spec.words)
        )  # tokens whose logits are in memory at a time

    @abstractmethod
    def logits(self, x: Tensor) -> Tensor:
        """Logits `(tokens, words / tp)` of this rank's words, from the head's input x `(tokens, hidden)`."""

    def lend(self, table: Vocabulary) -> None:
        """Use the embedding table of the module that reads this one's outputs, in the same process."""
        self.lent = (table,)

    def embedded(self, batch: Batch) -> Tensor:
        """Embeddings `(local_tokens, hidden)` of the batch's words."""
        table = self.lent[0] if self.lent else self.embedding
        return table(self.words(batch, batch.inputs), batch.among(self.part))  # type: ignore[no-any-return]

    def words(self, batch: Batch, of_block: Tensor) -> Tensor:
        """Of the block's words `(tokens)` those that this rank looks up: all where the table is sharded, else its own
        rows `(local_tokens)`.
        """
        return of_block if self.part.of > 1 else batch.tensor.mine(of_block)

    def summed_loss(self, x: Tensor, batch: Batch) -> Tensor:
        """The summed cross-entropy (scalar) of this rank's rows x `(local_tokens, hidden)`, in chunks; where there are
        several, backward recomputes the logits of each.
        """
        tensor, targets = batch.among(self.part), self.words(batch, batch.targets)
        x = tensor.gather(x)
        chunks = list(zip(*(torch.split(y, self.loss_tokens) for y in (x, targets)), strict=True))
        if len(chunks) == 1:
            return tensor.mine(self._losses(tensor, *chunks[0])).sum()
        run = partial(checkpoint, self._losses, tensor, use_reentrant=False, preserve_rng_state=False)
        with deferring(None):  # W would need the gradients of all logits at once
            return tensor.mine(torch.cat([run(*chunk) for chunk in chunks])).sum()

    def _losses(self, tensor: Tensors, x: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy of each token `(tokens)`, from x `(tokens, hidden)` and targets `(tokens)`."""
        return cross_entropy(self.logits(x), targets, tensor, self.part)
