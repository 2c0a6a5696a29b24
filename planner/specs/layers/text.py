"""The text encoder: outputs features for another module, or predicts masked tokens."""

from typing import ClassVar, Literal

from planner.specs.base import Amount, Count, Index, LayerCount
from planner.specs.layers.ends import End
from planner.specs.layers.heads import check_heads, norm_width
from planner.specs.layers.stack import Activation, Bias, Norm, Reads
from planner.specs.layers.worded import Worded


class TextEncoder(Worded, kw_only=True, tag_field="kind", tag="text_encoder"):
    """A transformer over tokens with full attention: BERT (arXiv 1810.04805), or the encoder of T5 (arXiv 1910.10683).

    Without a head its outputs, of the hidden size, are read by another module; with one it predicts tokens.
    """

    reads: ClassVar[Reads] = "tokens"

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
    def ends(self) -> tuple[End, ...]:
        hidden, norm = self.hidden, norm_width(self, self.hidden)
        table = "the table of its reader" if self.shared_words else "embedding"
        words = End(table, True, self.vocab, hidden, parted="outputs", tied=self.shared_words)
        said = (
            (self.max_positions, End("learned positions", True, self.max_positions, hidden)),
            (self.buckets, End("relative positions", True, self.buckets, self.heads)),
            (self.segments, End("segments", True, self.segments, hidden)),
            (self.input_norm, End("norms", True, norm)),
            (not self.post_norm, End("norms", False, norm)),
            (self.predicts, End("transform", False, hidden, hidden, hidden, 1.0)),
            (self.predicts, End("norms", False, norm)),
            (self.predicts, End("tied head", False, self.vocab, hidden, 0, 1.0, "outputs", tied=True)),
            (self.predicts, End("head's biases", False, self.vocab, parted="outputs")),
            (self.pooled, End("pooler", False, hidden, hidden, hidden)),
            (self.classes, End("classes", False, self.classes, hidden, self.classes)),
        )
        return (words, *(end for there, end in said if there))

    @property
    def gives(self) -> int:
        return 0 if self.predicts else self.hidden

    @property
    def vocabulary(self) -> int:
        return self.vocab if self.predicts else 0

    @property
    def normed_behind(self) -> bool:
        return self.post_norm
