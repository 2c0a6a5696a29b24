"""What a model is made of: modules with their shapes, and the edges between them."""

from typing import Annotated, ClassVar, Literal

import msgspec

from planner.specs.base import Amount, Count, Index, LayerCount, Name, Positive, Share, Spec
from planner.specs.parts import BLOCKS, Experts, Latent, StateSpace

Norm = Literal["rms", "layer"]
Bias = Literal["none", "qkv", "attention", "all"]  # of no linear, of q, k, v, of these and the output, of all
Activation = Literal["silu", "gelu", "relu2"]  # relu2: max(x, 0)² (arXiv 2109.08668)


class Decoder(Spec, kw_only=True, tag_field="kind", tag="decoder"):
    """A causal transformer over tokens, from embedding to next-token loss."""

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
    activation: Activation | None = (
        None  # of MLP and experts, of the gate where there is one; None: silu if gated, else gelu
    )
    positions: Literal["rope", "learned", "none"] = "rope"
    max_positions: Index = 0  # rows of the table of learned positions
    tied: bool = False  # the head shares the embedding's weights
    moe: Experts | None = None  # None: every layer has the dense MLP
    latent: Latent | None = None  # in place of kv_heads and head_dim
    state_space: StateSpace | None = None
    # A word for each layer, a letter for each of its blocks in their order: M state space, * attention, - MLP,
    # E experts, as in `M - M * -` or `M- M- *-`. Empty: attention, then MLP or experts, in every layer.
    pattern: str = ""
    window: Count | None = None  # tokens that a token attends to, itself among them; None: all before it
    full_every: Index = 0  # with a window: each such layer, counted from 1, has full attention; 0: none
    qk_norm: bool = False  # a norm of each head's query and key; latent attention has norms of its own
    sinks: bool = False  # one learned logit a head, which takes attention from all tokens (arXiv 2508.10925)
    rope_base: Positive = 10000.0  # of rotary positions: pair i of D / 2 turns by base^(-2i/D) a token
    rotary_share: Share = 1.0  # of a head's D numbers, how many turn: the first ones, an even number
    norm_eps: Amount = 1e-5  # added to the mean square, or the variance, that a norm divides by

    def __post_init__(self) -> None:
        check_heads(self)
        if self.positions == "learned" and not self.max_positions:
            raise ValueError("learned positions need a table | add max_positions")
        if self.full_every and self.window is None:
            raise ValueError("without a window, every layer has full attention | add window, or leave out full_every")
        check_rotary(self)
        check_pattern(self)


class Vit(Spec, kw_only=True, tag_field="kind", tag="vit"):
    """A vision transformer over flattened patches, full attention within an image, then a projector."""

    layers: LayerCount
    hidden: Count
    heads: Count
    kv_heads: Count | None = None
    ffn: Count
    head_dim: Count | None = None
    gated: bool = False
    norm: Norm = "layer"
    bias: Bias = "all"
    patch: Count  # pixels on a side
    frames: Count = 1  # frames in one patch
    channels: Count = 3
    merge: Count = 1  # merge x merge patches become one output token
    out: Count  # width of the output tokens: the hidden size of the module that reads them
    positions: Literal["rope"] = "rope"
    window: Count | None = None  # patches in an attention window; None: the whole image
    full_layers: tuple[Index, ...] = ()  # layers with full attention when there is a window
    norm_eps: Amount = 1e-5

    def __post_init__(self) -> None:
        check_heads(self)


class Audio(Spec, kw_only=True, tag_field="kind", tag="audio"):
    """Whisper's encoder (arXiv 2212.04356): two convolutions of width 3 over mel frames, of which the second halves
    their number, then full attention within a clip, then one linear. Its tokens are what comes out of the convolutions.
    """

    layers: LayerCount
    hidden: Count
    heads: Count
    kv_heads: Count | None = None
    ffn: Count
    head_dim: Count | None = None
    gated: bool = False
    norm: Norm = "layer"
    bias: Bias | Literal["all_but_key"] = "all_but_key"
    mels: Count  # mel bins of a frame
    pool: Count = 1  # neighbouring tokens averaged into one output token
    out: Count  # width of the output tokens: the hidden size of the module that reads them
    positions: Literal["sinusoidal"] = "sinusoidal"  # a fixed table
    norm_eps: Amount = 1e-5

    def __post_init__(self) -> None:
        check_heads(self)


Module = Decoder | Vit | Audio


def check_heads(module: Module) -> None:
    """Heads share out the hidden size, and query heads share out the key/value heads."""
    if module.head_dim is None and module.hidden % module.heads:
        raise ValueError(
            f"hidden {module.hidden} is not divisible by heads {module.heads} | change one, or say head_dim"
        )
    if module.heads % kv_heads(module):
        raise ValueError(f"heads {module.heads} is not divisible by kv_heads {kv_heads(module)} | change one")


def check_rotary(module: Decoder) -> None:
    """Pairs of numbers turn."""
    turning = head_dim(module) * module.rotary_share
    rotary = module.positions == "rope" and module.latent is None
    if module.rotary_share < 1 and (not rotary or turning % 2 or not turning):
        what = f"rotary_share {module.rotary_share:g} of heads {head_dim(module)} wide"
        fix = "leave it out, say positions: none, or a share that is a positive even number of them"
        raise ValueError(f"{what} cannot turn in pairs | {fix}")


def check_pattern(module: Decoder) -> None:
    """The pattern has a word for each layer, its letters are blocks, each at most once, and what it names is there."""
    words, parts = module.pattern.split(), {"M": module.state_space, "E": module.moe}
    if words and len(words) != module.layers:
        raise ValueError(f"pattern has {len(words)} words for {module.layers} layers | write one word for each layer")
    for letter in sorted(set("".join(words)) - BLOCKS.keys()):
        raise ValueError(f"`{letter}` in pattern is no block | write {', '.join(BLOCKS)}")
    for word in words:
        if len(set(word.replace("E", "-"))) != len(word):
            raise ValueError(f"`{word}` in pattern has a block twice | a layer has each once, and MLP or experts")
    for letter, name in (("M", "state_space"), ("E", "moe")):
        if letter in module.pattern and parts[letter] is None:
            raise ValueError(f"`{letter}` in pattern needs {name} | add {name}, or leave `{letter}` out")
    if module.state_space and "M" not in module.pattern:
        raise ValueError("no layer has the state_space | say which in pattern, or leave it out")
    if words and module.moe and ("E" not in module.pattern or (module.moe.dense_layers, module.moe.every) != (0, 1)):
        raise ValueError("pattern says which layers have experts | write E there, leave out dense_layers and every")


def latent_of(module: Module) -> Latent | None:
    return module.latent if isinstance(module, Decoder) else None


def kv_heads(module: Module) -> int:
    """Heads of keys and values; latent attention makes as many as there are heads."""
    return module.heads if latent_of(module) else module.kv_heads or module.heads


def head_dim(module: Module) -> int:
    """Width of a head's query and key."""
    latent = latent_of(module)
    return latent.nope_dim + latent.rope_dim if latent else module.head_dim or module.hidden // module.heads


def value_dim(module: Module) -> int:
    """Width of a head's value and output."""
    latent = latent_of(module)
    return latent.value_dim if latent else head_dim(module)


def activation(module: Module) -> Activation:
    """Of its MLP, or of the gate where there is one."""
    said = module.activation if isinstance(module, Decoder) else None
    return said or ("silu" if module.gated else "gelu")


def rotary_share(module: Module) -> float:
    """Of a head's numbers, how many turn with the place of a token."""
    return module.rotary_share if isinstance(module, Decoder) else 1.0


def merged_tokens(module: Module) -> int:
    """Tokens that become one output, and so stay together: shards and items are whole multiples of it."""
    if isinstance(module, Vit):
        return module.merge**2
    return module.pool if isinstance(module, Audio) else 1


class ModelEdge(Spec):
    """The output tokens of one module are inputs of another."""

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")


class Model(Spec):
    """`profiles/models/*.yaml`: modules by name, and who feeds whom."""

    FORMAT: ClassVar[str] = "planner.model/1"
    format: str
    name: str
    source: str  # where the shape is published
    modules: Annotated[dict[Name, Module], msgspec.Meta(min_length=1)]
    edges: tuple[ModelEdge, ...] = ()

    def __post_init__(self) -> None:
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in self.modules:
                    raise ValueError(f"the edge names `{end}`, which is no module | one of {', '.join(self.modules)}")
