"""The decoder: a language model that predicts the next token."""

from typing import ClassVar, Literal

from planner.specs.base import Amount, Count, Index, LayerCount, Positive, Share
from planner.specs.layers.blocks import PATTERN_LETTERS, LayerKind, kind_blocks, pattern_kinds
from planner.specs.layers.components import Experts, Indexer, LatentAttentionShape, LinearAttention, StateSpace
from planner.specs.layers.embedding_head import EmbeddingHeadWeight
from planner.specs.layers.head_widths import check_heads, head_dim, norm_parameters
from planner.specs.layers.rope_scaling import RopeScaling, YarnScaling
from planner.specs.layers.stack import Activation, Bias, Norm, TextStack


class Decoder(TextStack, kw_only=True, tag_field="kind", tag="decoder"):
    """A causal transformer over tokens, from embedding to next-token loss."""

    causal: ClassVar[bool] = True

    layers: LayerCount
    # How many of the layers, the last ones, predict one more token ahead each, as the last other layer predicts the
    # next (multi-token prediction, arXiv 2412.19437): each reads the output before it and the embedding of the token
    # that was predicted, both normed, through a projection; its own output passes through a norm and the same head.
    mtp: Index = 0
    hidden: Count
    heads: Count
    kv_heads: Count | None = None  # None: as many as heads
    ffn: Count  # width of the MLP; a gated MLP has two input projections of this width
    vocab: Count
    added_words: Index = 0  # rows of the embedding beyond the words of the head
    head_dim: Count | None = None  # None: hidden / heads
    gated: bool = True
    norm: Norm = "rms"
    norms: Literal["before", "behind", "both"] = "before"  # of a block's input, of its output before it is added
    bias: Bias = "none"
    activation: Activation | None = None  # of MLP and experts, or of their gates; None: silu if gated, else gelu
    # relative: attention scores are not scaled, also those of cross attention, and a learned bias for each head and
    # bucket
    # of distances is added to those between tokens (T5, arXiv 1910.10683); all layers share the biases.
    positions: Literal["rope", "learned", "relative", "none"] = "rope"
    max_positions: Index = 0  # size of the table of learned positions
    buckets: Index = 0  # of distances, with relative positions
    tied: bool = False  # the head shares the embedding's weights
    scaled_head: bool = False  # the head's input is divided by sqrt(hidden)
    moe: Experts | None = None  # None: every layer has the dense MLP
    latent: LatentAttentionShape | None = None  # in place of kv_heads and head_dim
    cross: Count | None = None  # width of another module's outputs, which every layer, or those with X, attend to
    cross_norms: bool = False  # a norm of each head's query and key in cross attention
    # In layers with cross attention, the output of each block is multiplied by the tanh of a learned number before it
    # is added (Flamingo, arXiv 2204.14198).
    cross_gates: bool = False
    state_space: StateSpace | None = None
    linear_attention: LinearAttention | None = None
    indexer: Indexer | None = None  # of latent attention
    attention_gate: bool = False  # attention's output times the sigmoid of a projection as wide as the queries
    # A word for each layer, with a letter for each of its blocks in order: M state space, L linear attention, *
    # attention, X cross attention, - MLP, E experts, as in `M - M * -` or `*- *- X-`. Empty: attention, then MLP or
    # experts, in every layer.
    pattern: str = ""
    window: Count | None = None  # tokens that a token attends to, including itself; None: all before it
    full_every: Index = 0  # with a window: each such layer, counted from 1, has full attention; 0: none
    # A norm of each head's query and key, or one of all heads' together; latent attention has norms of its own.
    qk_norm: bool | Literal["whole"] = False
    sinks: bool = False  # a learned logit for each head in the softmax, without a value (arXiv 2508.10925)
    rope_base: Positive = 10000.0  # of rotary positions: pair i of D / 2 rotates by base^(-2i/D) per token
    rope_scaling: RopeScaling | None = None  # changes these frequencies for longer documents
    # Rotary pairs that rotate by time, by row and by column, in this order; empty: all rotate by a token's index. The
    # three are equal in text, and after an image they go on from its largest (Qwen2-VL, arXiv 2409.12191).
    rope_sections: tuple[Count, ...] = ()
    rope_interleaved: bool = False  # with sections: pairs alternate between the axes as long as each has some left
    rotary_share: Share = 1.0  # share of a head's D dims that are rotated: the first ones, an even number
    norm_eps: Amount = 1e-5  # added to the mean square, or the variance, that a norm divides by

    def __post_init__(self) -> None:
        check_heads(self)
        if self.mtp and self.mtp >= self.layers:
            raise ValueError(f"of {self.layers} layers the last {self.mtp} predict ahead | fewer, or more layers")
        if self.positions == "learned" and not self.max_positions:
            raise ValueError("learned positions need a table | add max_positions")
        if (self.positions == "relative") != bool(self.buckets):
            raise ValueError("relative positions, and only these, have buckets | add buckets, or leave them out")
        if self.buckets and (self.latent or self.window or self.sinks or self.state_space):
            fix = "leave out latent, window, sinks and state_space, or say other positions"
            raise ValueError(f"relative positions are of plain attention | {fix}")
        if self.cross and self.latent:
            raise ValueError("cross attention has keys and values of its own | leave out latent")
        check_cross(self)
        if self.full_every and self.window is None:
            raise ValueError("without a window, every layer has full attention | add window, or leave out full_every")
        check_alternatives(self)
        check_rotary(self)
        check_pattern(self)

    def layer_kind(self, layer: int) -> LayerKind:
        """Return the kind that the pattern gives; else each `every`-th layer after the first dense ones has experts."""
        if self.pattern:
            return pattern_kinds(self.pattern)[layer]
        if self.cross:
            return "cross"
        moe_number = layer + 1 - self.moe.dense_layers if self.moe else 0  # its number, from 1, after the dense ones
        return "moe" if self.moe and moe_number > 0 and moe_number % self.moe.every == 0 else "dense"

    def window_of(self, layer: int) -> int | None:
        if self.indexer:
            return self.indexer.topk  # a token attends to as many at most
        full = self.full_every and (layer + 1) % self.full_every == 0
        return None if full else self.window

    @property
    def embedding_head(self) -> tuple[EmbeddingHeadWeight, ...]:
        predicted = float(self.predicted_tokens)
        head = EmbeddingHeadWeight(
            "tied head" if self.tied else "head", False, self.vocab, self.hidden, 0, predicted, "outputs", self.tied
        )
        words = EmbeddingHeadWeight("embedding", True, self.input_vocabulary, self.hidden, sharded_dim="outputs")
        norm = EmbeddingHeadWeight("norms", False, norm_parameters(self, self.hidden))
        ahead = prediction_weights(self) if self.mtp else ()
        places = {
            "learned": (EmbeddingHeadWeight("learned positions", True, self.max_positions, self.hidden),),
            "relative": (EmbeddingHeadWeight("relative positions", True, self.buckets, self.heads),),
        }
        return (words, head, norm, *ahead, *places.get(self.positions, ()))

    @property
    def input_vocabulary(self) -> int:
        return self.vocab + self.added_words

    @property
    def output_vocabulary(self) -> int:
        return self.vocab

    @property
    def predicted_tokens(self) -> int:
        return 1 + self.mtp

    @property
    def rotary_base(self) -> float:
        return self.rope_base

    @property
    def rotary_scaling(self) -> RopeScaling | None:
        return self.rope_scaling

    @property
    def rotary_fraction(self) -> float:
        return self.rotary_share

    @property
    def rotary_sections(self) -> tuple[int, ...]:
        return self.rope_sections

    @property
    def interleaves_sections(self) -> bool:
        return self.rope_interleaved

    @property
    def position_axes(self) -> int:
        return 3 if self.rope_sections else 1

    @property
    def cross_attention_width(self) -> int:
        return self.cross or 0

    @property
    def has_cross_norms(self) -> bool:
        return self.cross_norms

    def gates_residuals(self, kind: LayerKind) -> bool:
        return self.cross_gates and "cross_attention" in kind_blocks(kind)

    @property
    def ssm(self) -> StateSpace | None:
        return self.state_space

    @property
    def linear_attention_shape(self) -> LinearAttention | None:
        return self.linear_attention

    @property
    def token_indexer(self) -> Indexer | None:
        return self.indexer

    @property
    def has_attention_gate(self) -> bool:
        return self.attention_gate

    @property
    def norm_places(self) -> tuple[str, ...]:
        return ("before", "behind") if self.norms == "both" else (self.norms,)

    @property
    def routed_experts(self) -> Experts | None:
        return self.moe

    @property
    def latent_attention(self) -> LatentAttentionShape | None:
        return self.latent

    @property
    def has_qk_norm(self) -> bool:
        return bool(self.qk_norm)

    @property
    def has_whole_qk_norm(self) -> bool:
        return self.qk_norm == "whole"

    @property
    def sink_heads(self) -> int:
        return self.heads if self.sinks else 0


def prediction_weights(module: Decoder) -> tuple[EmbeddingHeadWeight, ...]:
    """What layers that predict ahead have beside a layer: a projection of two normed inputs, a norm behind, and, where
    the head is no copy of the embedding already, one of the embedding (with the first stage's as a tied head is).
    """
    times, hidden = module.mtp, module.hidden
    projections = EmbeddingHeadWeight("projections ahead", False, times * hidden, 2 * hidden, 0, 1.0, "outputs")
    norms = EmbeddingHeadWeight("norms ahead", False, 3 * times * norm_parameters(module, hidden))
    words = EmbeddingHeadWeight(
        "embedding ahead", False, module.input_vocabulary, hidden, sharded_dim="outputs", tied=True
    )
    return (projections, norms) if module.tied else (projections, norms, words)


PART_LETTERS = {"M": "state_space", "L": "linear_attention", "E": "moe", "X": "cross"}  # fields of parts in patterns


def check_rotary(module: Decoder) -> None:
    """Raises ValueError where the rotated dims of a head are not pairs."""
    rotated = head_dim(module) * module.rotary_share
    rotary = module.positions == "rope" and module.latent is None
    if module.rotary_share < 1 and (not rotary or rotated % 2 or not rotated):
        what = f"rotary_share {module.rotary_share:g} of heads {head_dim(module)} wide"
        fix = "leave it out, set positions: none, or a share that is a positive even number of dims"
        raise ValueError(f"{what} cannot be rotated in pairs | {fix}")
    if module.rope_scaling is not None and module.positions != "rope":
        raise ValueError("rope_scaling is of rotary positions | leave it out, or say positions: rope")
    if isinstance(module.rope_scaling, YarnScaling) and module.rope_base <= 1:
        raise ValueError(f"with a rope_base of {module.rope_base:g} all pairs rotate alike | such as 10000")
    sections = module.rope_sections
    if module.rope_interleaved and not sections:
        raise ValueError("sections of rotary pairs alternate, and there are none | leave out rope_interleaved")
    if sections and (not rotary or len(sections) != 3 or 2 * sum(sections) != rotated):
        what = f"rope_sections {' + '.join(map(str, sections))} are not the {rotated / 2:g} rotary pairs of a head"
        raise ValueError(f"{what} | give three that add up to these, or leave them out")


def check_alternatives(module: Decoder) -> None:
    """Raises ValueError where parts stand beside what they replace or need."""
    for letter, name in (("M", "state_space"), ("L", "linear_attention")):
        if getattr(module, name) and letter not in module.pattern:
            raise ValueError(f"no layer has the {name} | say which in pattern, or leave it out")
    if module.state_space and module.linear_attention:
        raise ValueError("layers scan by a state space or by linear attention | leave one of them out")
    if module.indexer and not (module.latent and module.latent.q_rank):
        raise ValueError("an indexer's queries come from compressed ones | add latent with a q_rank, or leave it out")
    if module.indexer and module.window:
        raise ValueError("an indexer chooses among all tokens | leave out window")
    if module.latent and module.attention_gate:
        raise ValueError("an attention gate is as wide as plain queries | leave out latent, or attention_gate")


def check_cross(module: Decoder) -> None:
    """Raises ValueError where cross attention is in no layer, or beside what it cannot be."""
    if module.tied and module.added_words:
        raise ValueError("a tied head has all rows of the embedding | leave out added_words, or tied")
    if not module.cross:
        if module.cross_norms or module.cross_gates:
            raise ValueError("norms and gates are of cross attention | set cross, or leave them out")
        return
    if module.moe and not module.pattern:
        raise ValueError("cross attention stands between attention and a dense MLP | leave out moe, or say pattern")
    if module.pattern and "X" not in module.pattern:
        raise ValueError("no layer has the cross attention | write X in pattern, or leave out cross")
    if any("X" in word and "E" in word for word in module.pattern.split()):
        raise ValueError("a layer with cross attention has a dense MLP | write - for its E in pattern")


def check_pattern(module: Decoder) -> None:
    """Raises ValueError unless the pattern has a word for each layer, of letters that are blocks, each at most once,
    and the module has the parts that it names.
    """
    words, parts = module.pattern.split(), {letter: getattr(module, name) for letter, name in PART_LETTERS.items()}
    if words and len(words) != module.layers:
        raise ValueError(f"pattern has {len(words)} words for {module.layers} layers | write one word for each layer")
    for letter in sorted(set("".join(words)) - PATTERN_LETTERS.keys()):
        raise ValueError(f"`{letter}` in pattern is no block | write {', '.join(PATTERN_LETTERS)}")
    for word in words:
        if len(set(word.replace("E", "-"))) != len(word):
            raise ValueError(f"`{word}` in pattern has a block twice | a layer has each once, and MLP or experts")
    for letter, name in PART_LETTERS.items():
        if letter in module.pattern and parts[letter] is None:
            raise ValueError(f"`{letter}` in pattern needs {name} | add {name}, or leave `{letter}` out")
    if words and module.moe and ("E" not in module.pattern or (module.moe.dense_layers, module.moe.every) != (0, 1)):
        raise ValueError("pattern says which layers have experts | write E there, leave out dense_layers and every")
