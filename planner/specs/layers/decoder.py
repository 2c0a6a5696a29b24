"""A decoder: words in, the next word out."""

from typing import ClassVar, Literal

from planner.specs.base import Amount, Count, Index, LayerCount, Positive
from planner.specs.layers.blocks import LayerKind
from planner.specs.layers.ends import End
from planner.specs.layers.heads import check_heads, norm_width
from planner.specs.layers.stack import Bias, Norm, Stack
from planner.specs.parts import Experts, Latent


class Decoder(Stack, kw_only=True, tag_field="kind", tag="decoder"):
    """A causal transformer over tokens, from embedding to next-token loss."""

    causal: ClassVar[bool] = True

    layers: LayerCount
    hidden: Count
    heads: Count
    kv_heads: Count | None = None  # None: as many as heads
    ffn: Count  # width of the MLP; a gated MLP has two such projections in
    vocab: Count
    head_dim: Count | None = None  # None: hidden / heads
    gated: bool = True
    norm: Norm = "rms"
    bias: Bias = "none"
    positions: Literal["rope", "learned"] = "rope"
    max_positions: Index = 0  # rows of the table of learned positions
    tied: bool = False  # the head shares the embedding's weights
    moe: Experts | None = None  # None: every layer has the dense MLP
    latent: Latent | None = None  # in place of kv_heads and head_dim
    window: Count | None = None  # tokens that a token attends to, itself among them; None: all before it
    full_every: Index = 0  # with a window: each such layer, counted from 1, has full attention; 0: none
    qk_norm: bool = False  # a norm of each head's query and key; latent attention has norms of its own
    sinks: bool = False  # one learned logit a head, which takes attention from all tokens (arXiv 2508.10925)
    rope_base: Positive = 10000.0  # of rotary positions: pair i of D / 2 turns by base^(-2i/D) a token
    norm_eps: Amount = 1e-5  # added to the mean square, or the variance, that a norm divides by

    def __post_init__(self) -> None:
        check_heads(self)
        if self.positions == "learned" and not self.max_positions:
            raise ValueError("learned positions need a table | add max_positions")
        if self.full_every and self.window is None:
            raise ValueError("without a window, every layer has full attention | add window, or leave out full_every")

    def layer_kind(self, layer: int) -> LayerKind:
        """Behind the first dense layers, each `every`-th has experts."""
        behind = layer + 1 - self.moe.dense_layers if self.moe else 0  # its place, from 1, behind the dense ones
        return "moe" if self.moe and behind > 0 and behind % self.moe.every == 0 else "dense"

    def window_of(self, layer: int) -> int | None:
        full = self.full_every and (layer + 1) % self.full_every == 0
        return None if full else self.window

    @property
    def ends(self) -> tuple[End, ...]:
        head = End("tied head" if self.tied else "head", False, self.vocab, self.hidden, 0, 1.0, "outputs", self.tied)
        words = End("embedding", True, self.vocab, self.hidden, parted="outputs")
        norm = End("norms", False, norm_width(self, self.hidden))
        rows = (End("learned positions", True, self.max_positions, self.hidden),)
        return (words, head, norm, *(rows if self.positions == "learned" else ()))

    @property
    def vocabulary(self) -> int:
        return self.vocab

    @property
    def longest(self) -> int | None:
        return self.max_positions if self.positions == "learned" else None

    @property
    def rotary_base(self) -> float:
        return self.rope_base

    @property
    def routed(self) -> Experts | None:
        return self.moe

    @property
    def compressed(self) -> Latent | None:
        return self.latent

    @property
    def normed_heads(self) -> bool:
        return self.qk_norm

    @property
    def sink_heads(self) -> int:
        return self.heads if self.sinks else 0
