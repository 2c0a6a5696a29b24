"""A module that looks words up in a table, and may end in the summed cross entropy of words.

The ranks of a tensor-parallel block part the vocabulary. One that does not divide every rank has whole, and uses for
its own rows.
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

MAX_LOGITS = 2**27  # held at a time: 512 MiB of them in float32, beside a copy in a narrower dtype and their gradient


class PredictingNetwork(Network):
    def __init__(self, spec: Module, dtype: torch.dtype, held: Held = WHOLE_MODULE) -> None:
        super().__init__(spec, dtype, held)
        self.part = held.part(spec.words)
        self.lent: tuple[Vocabulary, ...] = ()  # in a tuple, and so no parameters of this module
        if not spec.borrows and (self.first or (spec.ties and self.last)):
            self.embedding = Vocabulary(spec.words, spec.hidden, dtype, self.part)
        self.loss_tokens = max(1, MAX_LOGITS // self.part.size(spec.words))  # tokens whose logits are held at a time

    @abstractmethod
    def logits(self, x: Tensor) -> Tensor:
        """Of what the head reads [t, hidden], those of this rank's words."""

    def lend(self, table: Vocabulary) -> None:
        """The table of the module that reads this one's outputs, in the same process."""
        self.lent = (table,)

    def embedded(self, batch: Batch) -> Tensor:
        """The batch's words, [s, hidden] of this rank's rows."""
        table = self.lent[0] if self.lent else self.embedding
        return table(self.words(batch, batch.inputs), batch.among(self.part))  # type: ignore[no-any-return]

    def words(self, batch: Batch, of_block: Tensor) -> Tensor:
        """Those that this rank works on: all of its block's, where it has only some rows of the tables."""
        return of_block if self.part.of > 1 else batch.tensor.mine(of_block)

    def summed_loss(self, x: Tensor, batch: Batch) -> Tensor:
        """Of this rank's rows [s, hidden], in chunks; when there are several, backward computes the logits of each
        again.
        """
        tensor, targets = batch.among(self.part), self.words(batch, batch.targets)
        x = tensor.gather(x)
        chunks = list(zip(*(torch.split(y, self.loss_tokens) for y in (x, targets)), strict=True))
        if len(chunks) == 1:
            return tensor.mine(self._losses(tensor, *chunks[0])).sum()
        run = partial(checkpoint, self._losses, tensor, use_reentrant=False, preserve_rng_state=False)
        with deferring(None):  # W would need the gradients of all logits at a time
            return tensor.mine(torch.cat([run(*chunk) for chunk in chunks])).sum()

    def _losses(self, tensor: Tensors, x: Tensor, targets: Tensor) -> Tensor:
        """Of each token."""
        return cross_entropy(self.logits(x), targets, tensor, self.part)
