"""A causal decoder: tokens in, summed next-token cross entropy out."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from planner.models.batch import Batch
from planner.models.held import WHOLE_MODULE, Held
from planner.models.layer import norm
from planner.models.linear import linear
from planner.models.network import Network
from planner.specs.model import Decoder

MAX_LOGITS = 2**27  # held at a time: 512 MiB of them in float32, beside a copy in a narrower dtype and their gradient


class DecoderNetwork(Network):
    def __init__(self, spec: Decoder, dtype: torch.dtype, held: Held = WHOLE_MODULE) -> None:
        super().__init__(spec, dtype, held)
        if self.first or (spec.tied and self.last):
            self.embedding = nn.Embedding(spec.vocab, spec.hidden, dtype=dtype)
        learned = self.first and spec.positions == "learned"
        self.position = nn.Embedding(spec.max_positions, spec.hidden, dtype=dtype) if learned else None
        self.norm = norm(spec, dtype) if self.last else None
        self.head = linear(spec.hidden, spec.vocab, False, dtype) if self.last and not spec.tied else None
        self.loss_tokens = max(1, MAX_LOGITS // spec.vocab)  # tokens whose logits are held at a time

    def start(self, batch: Batch) -> Tensor:
        x: Tensor = self.embedding(batch.inputs)
        return x if self.position is None else x + self.position(batch.positions)

    def finish(self, x: Tensor, batch: Batch) -> Tensor:
        """In chunks of tokens; when there are several, backward computes the logits of each again."""
        assert self.norm is not None
        chunks = list(zip(*(torch.split(y, self.loss_tokens) for y in (self.norm(x), batch.targets)), strict=True))
        if len(chunks) == 1:
            return self._loss(*chunks[0])
        losses = [checkpoint(self._loss, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
        return torch.stack(losses).sum()

    def _loss(self, x: Tensor, targets: Tensor) -> Tensor:
        logits = F.linear(x, self.embedding.weight if self.head is None else self.head.weight)
        return F.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), targets, reduction="sum")
