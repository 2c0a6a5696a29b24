"""A causal decoder from token ids to the summed next-token cross-entropy."""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from planner.models.autograd.deferred_weights import deferrable_linear
from planner.models.batch import Batch
from planner.models.layers.linear import build_norm, column_parallel
from planner.models.networks.word_prediction import WordPredictionNetwork
from planner.models.sharding import FULL_MODULE, ModuleShard
from planner.specs.layers import Decoder


class DecoderNetwork(WordPredictionNetwork):
    """A decoder with its embedding and head."""

    def __init__(self, spec: Decoder, dtype: torch.dtype, shard: ModuleShard = FULL_MODULE) -> None:
        super().__init__(spec, dtype, shard)
        learned_positions = self.has_first_layer and spec.positions == "learned"
        self.position = nn.Embedding(spec.max_positions, spec.hidden, dtype=dtype) if learned_positions else None
        self.norm = build_norm(spec, dtype) if self.has_last_layer else None
        untied_head = self.has_last_layer and not spec.tied
        self.head = (
            column_parallel(spec.hidden, spec.vocab, False, dtype, self.vocabulary_shard) if untied_head else None
        )
        self.head_scale = spec.hidden**-0.5 if spec.scaled_head else 1.0

    def embed(self, batch: Batch) -> Tensor:
        """Embeddings `(local_tokens, hidden)`."""
        x = batch.with_features(self.embed_words(batch))
        return x if self.position is None else x + self.position(batch.tensor_parallel.local_rows(batch.positions))

    def pauses(self, batch: Batch) -> Collection[int]:
        return () if batch.features is None else range(batch.features.depths(self.spec.hidden))

    def after_layer(self, layer: int, x: Tensor, batch: Batch) -> Tensor:
        """The output of one of the first layers, with features of a deeper layer of a tower."""
        assert batch.features is not None
        return batch.features.add_deeper(layer, x)

    def output(self, x: Tensor, batch: Batch) -> Tensor:
        """The summed loss (scalar) of x `(local_tokens, hidden)`."""
        assert self.norm is not None
        return self.summed_loss(self.norm(x), batch)

    def logits(self, x: Tensor) -> Tensor:
        """Logits `(tokens, words / tp)` of this rank's words, from x `(tokens, hidden)`."""
        weight = self.embedding.weight if self.head is None else self.head.weight
        return deferrable_linear(x if self.head_scale == 1.0 else x * self.head_scale, weight)
