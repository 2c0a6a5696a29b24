"""Blocks of modules as the keys of a config.json say them. A family is a row of blocks (hf/families.py): each reads its
keys and gives fields of a module, and later ones stand in place of earlier ones.

Defaults are those of transformers for absent keys.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from planner.hf.expert_balance import with_balance
from planner.hf.hf_config import MOST, HfConfig
from planner.hf.rope import rope_fields
from planner.specs.layers import Decoder, Module
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
Finish = Callable[[HfConfig, Any], Any]


class Family(NamedTuple):
    """One family of modules: its blocks, and what its files may leave out."""

    blocks: tuple[Block, ...]
    defaults: Mapping[str, Any] = {}  # of absent keys
    within: Mapping[str, Any] = {}  # of absent keys in a text_config, which may leave out the usual shape
    only: Mapping[str, tuple[Any, ...]] = {}  # values that the blocks stand for: others are noted
    unused: Collection[str] = ()  # keys that say nothing more
    added: tuple[str, ...] = ()  # what such models compute besides, without parameters: noted
    kind: type[Module] = Decoder
    finish: Finish = with_balance  # notes what the module has not, or changes it


def family(
    *blocks: Block,
    within: Mapping[str, Any] | None = None,
    only: Mapping[str, tuple[Any, ...]] | None = None,
    unused: Collection[str] = (),
    added: tuple[str, ...] = (),
    kind: type[Module] = Decoder,
    finish: Finish | None = None,
    **defaults: Any,
) -> Family:
    """A family of these blocks, with defaults of absent keys."""
    finish = finish or (with_balance if kind is Decoder else lambda config, module: module)
    return Family(blocks, defaults, within or {}, only or {}, unused, added, kind, finish)


def read_module(config: HfConfig, family: Family, **given: Any) -> Any:
    """The module of a config, with fields that are `given`. Raises InputError where its numbers do not fit together."""
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
    return family.finish(config, config.made(family.kind, "hidden_size", **fields | given))


def fixed(**fields: Any) -> Block:
    """Fields that are the same in every file of a family."""
    return lambda config: fields


def counts(**keys: str) -> Block:
    """Fields that are whole numbers, under these keys."""
    most = {"layers": MOST_LAYERS}
    return lambda config: {field: config.count(key, most.get(field, MOST)) for field, key in keys.items()}


def numbers(**keys: str) -> Block:
    """Fields that are numbers, under these keys."""
    return lambda config: {field: config.number(key) for field, key in keys.items()}


def flags(**keys: str) -> Block:
    """Fields that are true or false, under these keys."""
    return lambda config: {field: config.flag(key) for field, key in keys.items()}


def stack(
    layers: str = "num_hidden_layers", hidden: str = "hidden_size", eps: str = "rms_norm_eps", tied: bool = False
) -> Block:
    """What every decoder has, under these keys."""
    usual = {"tie_word_embeddings": tied, **({eps: 1e-6} if eps == "rms_norm_eps" else {})}
    shape = counts(layers=layers, hidden=hidden, vocab="vocab_size")
    return lambda config: {
        **shape(config.assume(**usual)),
        "tied": config.flag("tie_word_embeddings"),
        "norm_eps": config.number(eps),
    }


def grouped_attention(config: HfConfig) -> Fields:
    """Heads, those of keys and values, and their width."""
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    kv_heads = config.count_or_none("num_key_value_heads")
    head_dim = config.positive_or_none("head_dim|attention_head_dim")
    return {
        "heads": heads,
        "kv_heads": None if kv_heads == heads else kv_heads,
        "head_dim": None if head_dim and head_dim * heads == hidden else head_dim,
    }


def equal_heads(key: str = "num_attention_heads", width: str = "hidden_size") -> Block:
    """Heads that share a width."""

    def read(config: HfConfig) -> Fields:
        heads = config.count(key)
        if config.count(width) % heads:
            raise config.wrong_value(key, f"a number of heads that divides {config.named(width)}")
        return {"heads": heads}

    return read


def rotary(base: float = 10000.0, share: float | None = None, read_share: bool = False) -> Block:
    """Rotary positions. `share`: of a head's dims that are rotated, in every file, or where it says nothing."""
    return lambda config: rope_fields(config.assume(rope_theta=base), 1.0 if share is None else share, read_share)


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


def activated(key: str = "hidden_act") -> Block:
    """The activation function under this key; None: gelu. Others are noted."""

    def read(config: HfConfig) -> Fields:
        config.expect(key, tuple(ACTIVATIONS))
        return {"activation": ACTIVATIONS.get(config.text(key))}

    return read


def activated_mlp(key: str, gated: bool) -> Block:
    """An MLP with the activation function under this key."""

    def read(config: HfConfig) -> Fields:
        activation = activated(key)(config)["activation"] or ("gelu" if gated else None)
        return {"ffn": config.count("intermediate_size"), "gated": gated, "activation": activation}

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
    return {"window": config.count_or_none("sliding_window")}


class WindowRule(NamedTuple):
    """Which layers have a window, where no list says it."""

    has_window: Callable[[int, int], bool]  # of a layer, and of the number under the key
    key: str = ""
    usual: int = 0


LATER = WindowRule(lambda layer, first: layer >= first, "max_window_layers", 28)  # Qwen's
EARLY_EVEN = WindowRule(lambda layer, last: layer % 2 == 0 and layer < last, "max_window_layers", 28)  # Qwen2-MoE's
EVEN = WindowRule(lambda layer, none: layer % 2 == 0)
EVERY = WindowRule(lambda layer, none: True)


def each_layer(key: str, every: int) -> WindowRule:
    """Windows in all layers but each k-th, k under this key."""
    return WindowRule(lambda layer, step: (layer + 1) % max(1, step) != 0, key, every)


def windows(rule: WindowRule, switch: str = "use_sliding_window", size: str = "sliding_window") -> Block:
    """The spec's `window` and `full_every`. `rule`: which layers have one, where no list says it; `switch`: the key
    that turns windows on; empty: they are never off.
    """

    def read(config: HfConfig) -> Fields:
        config.assume(layer_types=None, **({switch: False} if switch else {}))
        config.read_keys |= {size, "layer_types", "max_window_layers", "sliding_window_pattern"}
        if (switch and not config.flag(switch)) or config.count_or_none(size) is None:
            return {}
        types = layer_types(config, {SLIDING, FULL, CHUNKED})
        full = [kind == FULL for kind in types]
        if not types:
            stated = (config.assume(**{rule.key: rule.usual}).count_or_none(rule.key) or 0) if rule.key else 0
            layers = range(config.count("num_hidden_layers", MOST_LAYERS))
            full = [not rule.has_window(layer, stated) for layer in layers]
        every = full_attention_rule(full)
        if every is None:
            key = "layer_types" if types else "max_window_layers"
            fix = "all, or all but every k-th, may have one; or planner import hf --build"
            raise config.key_error(key, "these layers with a window cannot be expressed", fix)
        return {} if all(full) else {"window": config.count(size), "full_every": every}

    return read


def layer_types(config: HfConfig, words: Collection[str]) -> list[str]:
    """The list `layer_types`, a word for each layer; empty where there is none. Raises InputError."""
    layers, types = config.count("num_hidden_layers", MOST_LAYERS), config.assume(layer_types=None).value("layer_types")
    if types is None or types == []:
        return []
    if not isinstance(types, list) or not {*map(str, types)} <= {*words}:
        raise config.wrong_value("layer_types", f"a list of {' and '.join(sorted(words, reverse=True)[:2])}")
    if len(types) != layers:
        raise config.wrong_value("layer_types", f"a list of {layers} layers")
    return types


def full_attention_rule(full: Sequence[bool]) -> int | None:
    """`full_every` such that exactly these layers have full attention, 0 for none; None where no such rule exists."""
    if not any(full):
        return 0
    every = full.index(True) + 1
    fits = all(has == ((layer + 1) % every == 0) for layer, has in enumerate(full))
    return every if fits else None


def gpt2(config: HfConfig) -> Fields:
    """GPT-2: learned positions, an MLP four times as wide, biases everywhere."""
    ffn = config.assume(n_inner=None).count_or_none("n_inner") or 4 * config.count("n_embd")
    shape = counts(heads="n_head", max_positions="n_positions")(config)
    return {**shape, "ffn": ffn, "gated": False, "norm": "layer", "bias": "all", "positions": "learned"}


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
