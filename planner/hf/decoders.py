"""Blocks of decoders as the keys of a config.json say them. A family is a row of blocks (hf/families.py): each reads
its keys and gives fields of a `Decoder`, and later ones stand in place of earlier ones.

Defaults are those of transformers for absent keys.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from planner.hf.expert_balance import with_balance
from planner.hf.hf_config import HfConfig
from planner.hf.rope import rope_fields
from planner.specs.layers import Decoder
from planner.specs.layers.stack import Activation

MOST_LAYERS = 10_000  # as in a model's file
SLIDING, FULL, CHUNKED = "sliding_attention", "full_attention", "chunked_attention"
ACTIVATIONS: dict[str, Activation | None] = {
    "gelu": None, "quick_gelu": "quick_gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "relu": "relu",
}  # fmt: skip
SHAPE_4096: dict[str, Any] = {  # of llama and qwen2: what a text_config within another config may leave out
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
Fields = dict[str, Any]
Block = Callable[[HfConfig], Fields]


class Family(NamedTuple):
    """One family of decoders: its blocks, and what its files may leave out."""

    blocks: tuple[Block, ...]
    defaults: Mapping[str, Any] = {}  # of absent keys
    within: Mapping[str, Any] = {}  # of absent keys in a text_config, which may leave out the usual shape
    only: Mapping[str, tuple[Any, ...]] = {}  # values that the blocks stand for: others are noted
    unused: Collection[str] = ()  # keys that say nothing more
    added: tuple[str, ...] = ()  # what such models compute besides, without parameters: noted


def family(
    *blocks: Block,
    within: Mapping[str, Any] | None = None,
    only: Mapping[str, tuple[Any, ...]] | None = None,
    unused: Collection[str] = (),
    added: tuple[str, ...] = (),
    **defaults: Any,
) -> Family:
    """A family of these blocks, with defaults of absent keys."""
    return Family(blocks, defaults, within or {}, only or {}, unused, added)


def read_decoder(config: HfConfig, family: Family) -> Decoder:
    """The decoder of a config. Raises InputError where its numbers do not fit together."""
    config.assume(**family.defaults).assume_within(**family.within).read_keys |= {*family.unused}
    for key, accepted in family.only.items():
        config.assume(**{key: accepted[0]}).expect(key, accepted)
        if key.endswith("bias") and config.value(key) not in accepted:  # which would change the parameters
            raise config.key_error(key, f"{config.value(key)} cannot be expressed for this kind", str(accepted[0]))
    for what in family.added:
        config.assumption(f"without {what}")
    fields: Fields = {}
    for block in family.blocks:
        fields |= block(config)
    try:
        return with_balance(config, Decoder(**fields))
    except ValueError as error:
        what, _, fix = str(error).partition(" | ")
        raise config.key_error("hidden_size", what, fix) from error


def fixed(**fields: Any) -> Block:
    """Fields that are the same in every file of a family."""
    return lambda config: fields


def stack(
    layers: str = "num_hidden_layers", hidden: str = "hidden_size", eps: str = "rms_norm_eps", tied: bool = False
) -> Block:
    """What every decoder has, under these keys."""

    def read(config: HfConfig) -> Fields:
        config.assume(tie_word_embeddings=tied, **({eps: 1e-6} if eps == "rms_norm_eps" else {}))
        return {
            "layers": config.count(layers, MOST_LAYERS),
            "hidden": config.count(hidden),
            "vocab": config.count("vocab_size"),
            "tied": config.flag("tie_word_embeddings"),
            "norm_eps": config.number(eps),
        }

    return read


def grouped_attention(config: HfConfig) -> Fields:
    """Heads, those of keys and values, and their width."""
    config.assume(head_dim=None)
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    kv_heads, head_dim = config.count_or_none("num_key_value_heads"), config.count_or_none("head_dim")
    return {
        "heads": heads,
        "kv_heads": None if kv_heads == heads else kv_heads,
        "head_dim": None if head_dim and head_dim * heads == hidden else head_dim,
    }


def rotary(base: float = 10000.0, share: float | None = None, read_share: bool = False) -> Block:
    """Rotary positions. `share`: of a head's dims that are rotated, in every file, or where it says nothing."""

    def read(config: HfConfig) -> Fields:
        return rope_fields(config.assume(rope_theta=base), 1.0 if share is None else share, read_share)

    return read


def rotary_width(config: HfConfig) -> Fields:
    """The share of a head's dims that are rotated, where the file gives their number."""
    heads = config.count("num_attention_heads")
    width = config.count_or_none("head_dim") or config.count("hidden_size") // heads
    rotated = config.assume(rotary_dim=width).count("rotary_dim", width)
    return {"rotary_share": rotated / width}


def gated_mlp(width: str = "intermediate_size") -> Block:
    """An MLP whose gate passes through SiLU."""

    def read(config: HfConfig) -> Fields:
        config.assume(hidden_act="silu").expect("hidden_act", ("silu", "swish"))
        return {"ffn": config.count(width)}

    return read


def activated_mlp(key: str, gated: bool) -> Block:
    """An MLP with the activation function under this key."""

    def read(config: HfConfig) -> Fields:
        config.expect(key, tuple(ACTIVATIONS))
        activation = ACTIVATIONS.get(config.text(key))
        named = activation or ("gelu" if gated else None)
        return {"ffn": config.count("intermediate_size"), "gated": gated, "activation": named}

    return read


def bias_by(key: str, named: str = "attention", default: bool = False) -> Block:
    """The spec's `bias` is of this kind where the file says so."""
    return lambda config: {"bias": named if config.assume(**{key: default}).flag(key) else "none"}


def llama_bias(config: HfConfig) -> Fields:
    """The spec's `bias` by attention_bias and mlp_bias."""
    config.assume(attention_bias=False, mlp_bias=False)
    bias, mlp_bias = config.flag("attention_bias"), config.flag("mlp_bias")
    if mlp_bias and not bias:
        fix = "a spec has biases of attention, or of attention and MLP"
        raise config.key_error("mlp_bias", "biases of the MLP alone cannot be expressed", fix)
    return {"bias": "all" if mlp_bias else "attention" if bias else "none"}


def plain_window(config: HfConfig) -> Fields:
    """The same window in every layer, where the file has one."""
    return {"window": config.assume(sliding_window=None).count_or_none("sliding_window")}


def later_layers(config: HfConfig) -> Callable[[int], bool]:
    """Qwen's rule where no list gives it: layers from max_window_layers on have windows."""
    first = config.assume(max_window_layers=28).count_or_none("max_window_layers") or 0
    return lambda layer: layer >= first


def every_layer(config: HfConfig) -> Callable[[int], bool]:
    """Every layer has a window."""
    return lambda layer: True


def even_layers(config: HfConfig) -> Callable[[int], bool]:
    """Every second layer has a window, from the first on."""
    return lambda layer: layer % 2 == 0


def early_even_layers(config: HfConfig) -> Callable[[int], bool]:
    """Qwen2-MoE's rule where no list gives it."""
    last = config.assume(max_window_layers=28).count_or_none("max_window_layers") or 0
    return lambda layer: layer % 2 == 0 and layer < last


def each_layer(key: str, every: int) -> Callable[[HfConfig], Callable[[int], bool]]:
    """Windows in all layers but each k-th, k under this key."""

    def rule(config: HfConfig) -> Callable[[int], bool]:
        step = config.assume(**{key: every}).count(key)
        return lambda layer: (layer + 1) % step != 0

    return rule


def windows(
    rule: Callable[[HfConfig], Callable[[int], bool]], switch: str = "use_sliding_window", size: str = "sliding_window"
) -> Block:
    """The spec's `window` and `full_every`. `rule`: which layers have one, where no list says it; `switch`: the key
    that turns windows on; empty: they are never off.
    """

    def read(config: HfConfig) -> Fields:
        config.assume(layer_types=None, **({switch: False} if switch else {}))
        config.read_keys |= {size, "layer_types", "max_window_layers", "sliding_window_pattern"}
        if (switch and not config.flag(switch)) or config.count_or_none(size) is None:
            return {}
        layers, types = config.count("num_hidden_layers", MOST_LAYERS), config.value("layer_types")
        if types is not None and not (isinstance(types, list) and {*map(str, types)} <= {SLIDING, FULL, CHUNKED}):
            raise config.wrong_value("layer_types", f"a list of {SLIDING} and {FULL}")
        if types is not None and len(types) != layers:
            raise config.wrong_value("layer_types", f"a list of {layers} layers")
        full = [kind == FULL for kind in types or ()]
        if not types:
            has_window = rule(config)
            full = [not has_window(layer) for layer in range(layers)]
        every = full_attention_rule(full)
        if every is None:
            key = "layer_types" if types else "max_window_layers"
            fix = "all, or all but every k-th, may have one; or planner import hf --build"
            raise config.key_error(key, "these layers with a window cannot be expressed", fix)
        return {} if all(full) else {"window": config.count(size), "full_every": every}

    return read


def full_attention_rule(full: Sequence[bool]) -> int | None:
    """`full_every` such that exactly these layers have full attention, 0 for none; None where no such rule exists."""
    if not any(full):
        return 0
    every = full.index(True) + 1
    fits = all(has == ((layer + 1) % every == 0) for layer, has in enumerate(full))
    return every if fits else None


def gpt2(config: HfConfig) -> Fields:
    """GPT-2: learned positions, an MLP four times as wide, biases everywhere."""
    hidden = config.count("n_embd")
    return {
        "heads": config.count("n_head"),
        "ffn": config.assume(n_inner=None).count_or_none("n_inner") or 4 * hidden,
        "gated": False,
        "norm": "layer",
        "bias": "all",
        "positions": "learned",
        "max_positions": config.count("n_positions"),
    }


def whole_qk_norm(config: HfConfig) -> Fields:
    """MiniMax-M2's norms of all heads' queries and keys together."""
    config.assume(qk_norm_type="per_layer", use_qk_norm=True).expect("qk_norm_type", ("per_layer",))
    return {"qk_norm": "whole" if config.flag("use_qk_norm") else False}


def qk_norm_by(key: str, default: bool) -> Block:
    """A norm of each head's query and key where the file says so."""
    return lambda config: {"qk_norm": config.assume(**{key: default}).flag(key)}


def one_of(config: HfConfig, key: str, words: Any) -> str:
    """A text that is one of the members of a Literal. Raises InputError."""
    word = config.text(key)
    if word not in get_args(words):
        raise config.wrong_value(key, " or ".join(get_args(words)))
    return word
