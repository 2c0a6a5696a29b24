"""The text encoder: outputs features for another module, or predicts masked tokens."""

from typing import ClassVar, Literal

from planner.specs.base import Amount, Count, Index, LayerCount
from planner.specs.layers.embedding_head import EmbeddingHeadWeight
from planner.specs.layers.head_widths import check_heads, norm_parameters
from planner.specs.layers.stack import Activation, Bias, InputUnit, Norm, TextStack


class TextEncoder(TextStack, kw_only=True, tag_field="kind", tag="text_encoder"):
    """A transformer over tokens with full attention: BERT (arXiv 1810.04805), or the encoder of T5 (arXiv 1910.10683).

    Without a head its outputs, of the hidden size, are read by another module; with one it predicts tokens.
    """

    input_unit: ClassVar[InputUnit] = "tokens"

    layers: LayerCount
    hidden: Count
    heads: Count
    kv_heads: Count | None = None
    ffn: Count
    vocab: Count
    head_dim: Count | None = None
    gated: bool = False
    norm: Norm = "layer"
    bias: Bias = "all"
    activation: Activation | None = None
    positions: Literal["learned", "relative", "rope", "none"] = "learned"  # relative: as in a decoder, on both sides
    max_positions: Index = 0  # size of the table of learned positions
    buckets: Index = 0  # of distances, with relative positions
    segments: Index = 0  # size of the table of segment embeddings, for pairs of texts
    input_norm: bool = False  # a norm after the embeddings
    post_norm: bool = False  # norms follow the residual sums, so none follows the last layer
    shared_words: bool = False  # it uses the embedding of the module that reads its outputs
    predicts: bool = False  # a linear, a norm, and a head that is tied to the embedding, with biases of its own
    pooled: bool = False  # a linear over the first token of an item
    classes: Index = 0  # of a classifier over the pooled output
    norm_eps: Amount = 1e-5

    def __post_init__(self) -> None:
        check_heads(self)
        if (self.positions == "learned") != bool(self.max_positions):
            raise ValueError("learned positions, and only these, have a table | add max_positions, or leave it out")
        if (self.positions == "relative") != bool(self.buckets):
            raise ValueError("relative positions, and only these, have buckets | add buckets, or leave them out")
        if self.predicts and self.shared_words:
            raise ValueError("its head has the weights of its own table | leave out shared_words, or predicts")

    @property
    def embedding_head(self) -> tuple[EmbeddingHeadWeight, ...]:
        hidden, norm = self.hidden, norm_parameters(self, self.hidden)
        table = "the table of its reader" if self.shared_words else "embedding"
        words = EmbeddingHeadWeight(table, True, self.vocab, hidden, sharded_dim="outputs", tied=self.shared_words)
        optional = (
            (self.max_positions, EmbeddingHeadWeight("learned positions", True, self.max_positions, hidden)),
            (self.buckets, EmbeddingHeadWeight("relative positions", True, self.buckets, self.heads)),
            (self.segments, EmbeddingHeadWeight("segments", True, self.segments, hidden)),
            (self.input_norm, EmbeddingHeadWeight("norms", True, norm)),
            (not self.post_norm, EmbeddingHeadWeight("norms", False, norm)),
            (self.predicts, EmbeddingHeadWeight("transform", False, hidden, hidden, hidden, 1.0)),
            (self.predicts, EmbeddingHeadWeight("norms", False, norm)),
            (self.predicts, EmbeddingHeadWeight("tied head", False, self.vocab, hidden, 0, 1.0, "outputs", tied=True)),
            (self.predicts, EmbeddingHeadWeight("head's biases", False, self.vocab, sharded_dim="outputs")),
            (self.pooled, EmbeddingHeadWeight("pooler", False, hidden, hidden, hidden)),
            (self.classes, EmbeddingHeadWeight("classes", False, self.classes, hidden, self.classes)),
        )
        return (words, *(end for there, end in optional if there))

    @property
    def feature_width(self) -> int:
        return 0 if self.predicts else self.hidden

    @property
    def output_vocabulary(self) -> int:
        return self.vocab if self.predicts else 0

    @property
    def has_post_norm(self) -> bool:
        return self.post_norm
