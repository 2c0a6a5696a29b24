"""A causal decoder: tokens in, summed next-token cross entropy out.

The ranks of a tensor-parallel block part the vocabulary. One that does not divide every rank has whole, and uses for
its own rows.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from planner.models.batch import Batch
from planner.models.deferred import affine, deferring
from planner.models.held import WHOLE_MODULE, Held
from planner.models.linear import column
from planner.models.network import Network
from planner.models.norms import norm
from planner.models.tensor import Tensors
from planner.models.vocabulary import Vocabulary, cross_entropy
from planner.specs.layers import Decoder

MAX_LOGITS = 2**27  # held at a time: 512 MiB of them in float32, beside a copy in a narrower dtype and their gradient


class DecoderNetwork(Network):
    def __init__(self, spec: Decoder, dtype: torch.dtype, held: Held = WHOLE_MODULE) -> None:
        super().__init__(spec, dtype, held)
        self.part = held.part(spec.vocab)
        if self.first or (spec.tied and self.last):
            self.embedding = Vocabulary(spec.vocab, spec.hidden, dtype, self.part)
        learned = self.first and spec.positions == "learned"
        self.position = nn.Embedding(spec.max_positions, spec.hidden, dtype=dtype) if learned else None
        self.norm = norm(spec, dtype) if self.last else None
        separate = self.last and not spec.tied
        self.head = column(spec.hidden, spec.vocab, False, dtype, self.part) if separate else None
        self.loss_tokens = max(1, MAX_LOGITS // self.part.size(spec.vocab))  # tokens whose logits are held at a time

    def start(self, batch: Batch) -> Tensor:
        x = batch.fed(self.embedding(self.words(batch, batch.inputs), batch.among(self.part)))
        return x if self.position is None else x + self.position(batch.tensor.mine(batch.positions))

    def words(self, batch: Batch, of_block: Tensor) -> Tensor:
        """Those that this rank works on: all of its block's, where it has only some rows of the tables."""
        return of_block if self.part.of > 1 else batch.tensor.mine(of_block)

    def finish(self, x: Tensor, batch: Batch) -> Tensor:
        """In chunks of tokens; when there are several, backward computes the logits of each again."""
        assert self.norm is not None
        tensor, targets = batch.among(self.part), self.words(batch, batch.targets)
        x = tensor.gather(self.norm(x))
        chunks = list(zip(*(torch.split(y, self.loss_tokens) for y in (x, targets)), strict=True))
        if len(chunks) == 1:
            return tensor.mine(self._losses(tensor, *chunks[0])).sum()
        run = partial(checkpoint, self._losses, tensor, use_reentrant=False, preserve_rng_state=False)
        with deferring(None):  # W would need the gradients of all logits at a time
            return tensor.mine(torch.cat([run(*chunk) for chunk in chunks])).sum()

    def _losses(self, tensor: Tensors, x: Tensor, targets: Tensor) -> Tensor:
        """Of each token."""
        logits = affine(x, self.embedding.weight if self.head is None else self.head.weight)
        return cross_entropy(logits, targets, tensor, self.part)
