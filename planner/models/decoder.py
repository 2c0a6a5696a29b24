"""A causal decoder from token ids to the summed next-token cross-entropy."""

import torch
from torch import Tensor, nn

from planner.models.batch import Batch
from planner.models.deferred import affine
from planner.models.held import WHOLE_MODULE, Held
from planner.models.linear import column
from planner.models.norms import norm
from planner.models.predicting import PredictingNetwork
from planner.specs.layers import Decoder


class DecoderNetwork(PredictingNetwork):
    """A decoder with its embedding and head."""

    def __init__(self, spec: Decoder, dtype: torch.dtype, shard: Held = WHOLE_MODULE) -> None:
        super().__init__(spec, dtype, shard)
        learned_positions = self.first and spec.positions == "learned"
        self.position = nn.Embedding(spec.max_positions, spec.hidden, dtype=dtype) if learned_positions else None
        self.norm = norm(spec, dtype) if self.last else None
        untied_head = self.last and not spec.tied
        self.head = column(spec.hidden, spec.vocab, False, dtype, self.part) if untied_head else None
        self.head_scale = spec.hidden**-0.5 if spec.scaled_head else 1.0

    def start(self, batch: Batch) -> Tensor:
        """Embeddings `(local_tokens, hidden)`."""
        x = batch.fed(self.embedded(batch))
        return x if self.position is None else x + self.position(batch.tensor.mine(batch.positions))

    def finish(self, x: Tensor, batch: Batch) -> Tensor:
        """The summed loss (scalar) of x `(local_tokens, hidden)`."""
        assert self.norm is not None
        return self.summed_loss(self.norm(x), batch)

    def logits(self, x: Tensor) -> Tensor:
        """Logits `(tokens, words / tp)` of this rank's words, from x `(tokens, hidden)`."""
        weight = self.embedding.weight if self.head is None else self.head.weight
        return affine(x if self.head_scale == 1.0 else x * self.head_scale, weight)
