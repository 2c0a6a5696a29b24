"""A causal decoder: tokens in, summed next-token cross entropy out."""

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
    def __init__(self, spec: Decoder, dtype: torch.dtype, held: Held = WHOLE_MODULE) -> None:
        super().__init__(spec, dtype, held)
        learned = self.first and spec.positions == "learned"
        self.position = nn.Embedding(spec.max_positions, spec.hidden, dtype=dtype) if learned else None
        self.norm = norm(spec, dtype) if self.last else None
        separate = self.last and not spec.tied
        self.head = column(spec.hidden, spec.vocab, False, dtype, self.part) if separate else None
        self.head_scale = spec.hidden**-0.5 if spec.scaled_head else 1.0

    def start(self, batch: Batch) -> Tensor:
        x = batch.fed(self.embedded(batch))
        return x if self.position is None else x + self.position(batch.tensor.mine(batch.positions))

    def finish(self, x: Tensor, batch: Batch) -> Tensor:
        assert self.norm is not None
        return self.summed_loss(self.norm(x), batch)

    def logits(self, x: Tensor) -> Tensor:
        weight = self.embedding.weight if self.head is None else self.head.weight
        return affine(x if self.head_scale == 1.0 else x * self.head_scale, weight)
