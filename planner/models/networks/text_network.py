"""A text encoder: BERT (arXiv 1810.04805) with the cross-entropy of the words that its targets name, or vectors for
another module, as T5's encoder gives (arXiv 1910.10683).

Every token is of the first segment. The second segment, the pooler and its classes have parameters that no loss depends
on, since there are no sentence pairs.
"""

import torch
from torch import Tensor, nn

from planner.models.autograd.deferred_weights import deferrable_linear
from planner.models.batch import Batch
from planner.models.layers.linear import build_norm, replicated_linear
from planner.models.layers.mlp import ACTIVATIONS
from planner.models.networks.network import summed_squared_error
from planner.models.networks.word_prediction import WordPredictionNetwork
from planner.models.sharding import FULL_MODULE, EqualShard, ModuleShard, ParameterSplit
from planner.specs.layers import TextEncoder


class TextEncoderNetwork(WordPredictionNetwork):
    """A text encoder with its embeddings, and a masked-word head where it predicts."""

    def __init__(self, spec: TextEncoder, dtype: torch.dtype, shard: ModuleShard = FULL_MODULE) -> None:
        super().__init__(spec, dtype, shard)
        width, first, last = spec.hidden, self.has_first_layer, self.has_last_layer
        self.position = optional_embedding(spec.max_positions, width, dtype) if first else None
        self.segment = optional_embedding(spec.segments, width, dtype) if first else None
        self.input_norm = build_norm(spec, dtype) if first and spec.input_norm else None
        self.norm = build_norm(spec, dtype) if last and not spec.post_norm else None
        predicts, self.activation = last and spec.predicts, ACTIVATIONS[spec.mlp_activation]
        self.transform = replicated_linear(width, width, True, dtype) if predicts else None
        self.transform_norm = build_norm(spec, dtype) if predicts else None
        self.head = LogitBias(spec.vocab, dtype, self.vocabulary_shard) if predicts else None
        self.pooler = replicated_linear(width, width, True, dtype) if last and spec.pooled else None
        self.classes = replicated_linear(width, spec.classes, True, dtype) if last and spec.classes else None

    def embed(self, batch: Batch) -> Tensor:
        """Embeddings `(local_tokens, hidden)`."""
        x = batch.with_features(self.embed_words(batch))
        if self.position is not None:
            x = x + self.position(batch.tensor_parallel.local_rows(batch.positions))
        if self.segment is not None:
            x = x + self.segment.weight[0]
        return x if self.input_norm is None else self.input_norm(x)

    def output(self, x: Tensor, batch: Batch) -> Tensor:
        """Hidden vectors `(local_tokens, hidden)` where another module reads them; else a summed loss (scalar)."""
        x = x if self.norm is None else self.norm(x)
        if self.transform is not None and self.transform_norm is not None:
            x = self.transform_norm(self.activation(self.transform(x)))
            return self.summed_loss(x, batch) + self.zero_of_unused()
        return (
            x + self.zero_of_unused() if self.feeds_module else summed_squared_error(x, batch) + self.zero_of_unused()
        )

    def logits(self, x: Tensor) -> Tensor:
        """Logits `(tokens, words / tp)` of this rank's words, from x `(tokens, hidden)`."""
        assert self.head is not None
        return self.head(deferrable_linear(x, self.embedding.weight))  # type: ignore[no-any-return]

    def zero_of_unused(self) -> Tensor | float:
        """Zero (scalar), which gives parameters that no loss depends on a zero gradient."""
        sums = [each.weight.sum() + each.bias.sum() for each in (self.pooler, self.classes) if each is not None]
        return 0.0 * torch.stack(sums).sum() if sums else 0.0


class LogitBias(nn.Module):
    """A bias for the logit of each of this rank's words."""

    def __init__(self, words: int, dtype: torch.dtype, part: EqualShard) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(part.size(words), dtype=dtype))
        self.splits = {"bias": (ParameterSplit(0, part, "tp"),)}

    def forward(self, logits: Tensor) -> Tensor:
        """Logits `(tokens, words / tp)` to the same shape."""
        return logits + self.bias


def optional_embedding(rows: int, width: int, dtype: torch.dtype) -> nn.Embedding | None:
    """An embedding table `(rows, width)`; None for no rows."""
    return nn.Embedding(rows, width, dtype=dtype) if rows else None
