"""Decoders without experts: what each family's config keys mean for a spec.

Defaults are those of transformers for absent keys.
"""

from collections.abc import Callable, Sequence
from typing import Any

from planner.hf.expert_balance import with_balance
from planner.hf.hf_config import HfConfig
from planner.hf.rope import rope_fields
from planner.specs.layers import Decoder

MOST_LAYERS = 10_000  # as in a model's file
SLIDING, FULL = "sliding_attention", "full_attention"
LLAMA_DEFAULTS: dict[str, Any] = {
    "head_dim": None,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
    "layer_types": None,
}
SHAPE_4096: dict[str, Any] = {  # of llama and qwen2: what a text_config within another config may leave out
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
LLAMA = {**SHAPE_4096, "vocab_size": 32000, "intermediate_size": 11008}
MISTRAL = {**SHAPE_4096, "vocab_size": 32000, "intermediate_size": 14336}
QWEN2 = {**SHAPE_4096, "vocab_size": 151936, "intermediate_size": 22016}


def llama(config: HfConfig) -> Decoder:
    """Llama (arXiv 2302.13971): grouped-query attention with rotary positions, a gated MLP, RMS norms."""
    fields = llama_fields(config.assume(num_key_value_heads=None).assume_within(**LLAMA))
    return build_decoder(config, {**fields, "bias": llama_bias(config)})


def mistral(config: HfConfig) -> Decoder:
    """Mistral (arXiv 2310.06825): Llama with a sliding window."""
    config.assume(num_key_value_heads=8).assume_within(**MISTRAL)
    return build_decoder(config, {**llama_fields(config), "window": config.count_or_none("sliding_window")})


def qwen2(config: HfConfig) -> Decoder:
    """Qwen2 (arXiv 2407.10671): Llama with biases of queries, keys and values, and windows in later layers."""
    config.assume(num_key_value_heads=32).assume_within(**QWEN2)
    return build_decoder(
        config, {**llama_fields(config), "bias": "qkv", **window_fields(config, window_from_layer(config))}
    )


def qwen3(config: HfConfig) -> Decoder:
    """Qwen3 (arXiv 2505.09388): Llama with norms of queries and keys; windows in later layers, where they are on."""
    config.assume(num_key_value_heads=32, head_dim=128).assume_within(**QWEN2)
    fields = {**llama_fields(config), "bias": attention_bias(config), "qk_norm": True}
    return build_decoder(config, {**fields, **window_fields(config, window_from_layer(config))})


def gpt2(config: HfConfig) -> Decoder:
    """GPT-2: learned positions, an MLP four times as wide, biases everywhere."""
    config.assume(n_inner=None, activation_function="gelu_new", layer_norm_epsilon=1e-5, tie_word_embeddings=True)
    config.assume(scale_attn_weights=True)
    config.expect("activation_function", ("gelu",))
    config.expect("scale_attn_weights", (True,))
    hidden = config.count("n_embd")
    fields = {
        "layers": config.count("n_layer", MOST_LAYERS),
        "hidden": hidden,
        "heads": config.count("n_head"),
        "ffn": config.count_or_none("n_inner") or 4 * hidden,
        "vocab": config.count("vocab_size"),
        "gated": False,
        "norm": "layer",
        "bias": "all",
        "positions": "learned",
        "max_positions": config.count("n_positions"),
        "tied": config.flag("tie_word_embeddings"),
        "norm_eps": config.number("layer_norm_epsilon"),
    }
    return build_decoder(config, fields)


def llama_fields(config: HfConfig, rotary_share: float = 1.0) -> dict[str, Any]:
    """Fields that Llama and its descendants have in common; `rotary_share`: of a head's dims that are rotated."""
    config.assume(**LLAMA_DEFAULTS)
    config.expect("hidden_act", ("silu", "swish"))
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    kv_heads, head_dim = config.count_or_none("num_key_value_heads"), config.count_or_none("head_dim")
    return {
        "layers": config.count("num_hidden_layers", MOST_LAYERS),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": None if kv_heads == heads else kv_heads,
        "head_dim": None if head_dim and head_dim * heads == hidden else head_dim,
        "ffn": config.count("intermediate_size"),
        "vocab": config.count("vocab_size"),
        "tied": config.flag("tie_word_embeddings"),
        "norm_eps": config.number("rms_norm_eps"),
        **rope_fields(config, rotary_share),
    }


def llama_bias(config: HfConfig) -> str:
    """The spec's `bias` by attention_bias and mlp_bias."""
    bias, mlp_bias = attention_bias(config), config.flag("mlp_bias")
    if mlp_bias and bias == "none":
        fix = "a spec has biases of attention, or of attention and MLP"
        raise config.key_error("mlp_bias", "biases of the MLP alone cannot be expressed", fix)
    return "all" if mlp_bias else bias


def attention_bias(config: HfConfig) -> str:
    """The spec's `bias` by attention_bias."""
    return "attention" if config.flag("attention_bias") else "none"


def window_from_layer(config: HfConfig) -> Callable[[int], bool]:
    """Qwen's rule where no list gives it: layers from max_window_layers on have windows."""
    return lambda layer: layer >= (config.count_or_none("max_window_layers") or 0)


def window_fields(config: HfConfig, has_window: Callable[[int], bool], always: bool = False) -> dict[str, Any]:
    """The spec's `window` and `full_every`. `has_window`: of a layer that no list names; `always`: never off."""
    config.read_keys |= {"sliding_window", "layer_types", "max_window_layers"}
    if not (always or config.flag("use_sliding_window")) or config.count_or_none("sliding_window") is None:
        return {}
    types, layers = config.value("layer_types"), config.count("num_hidden_layers", MOST_LAYERS)
    if types is not None and not (isinstance(types, list) and {*map(str, types)} <= {SLIDING, FULL}):
        raise config.wrong_value("layer_types", f"a list of {SLIDING} and {FULL}")
    if types is not None and len(types) != layers:
        raise config.wrong_value("layer_types", f"a list of {layers} layers")
    full = [kind == FULL for kind in types] if types else [not has_window(layer) for layer in range(layers)]
    every = full_attention_rule(full)
    if every is None:
        key = "layer_types" if types else "max_window_layers"
        raise config.key_error(
            key, "these layers with a window cannot be expressed", "all, or all but every k-th, may have one"
        )
    return {} if all(full) else {"window": config.count("sliding_window"), "full_every": every}


def build_decoder(config: HfConfig, fields: dict[str, Any]) -> Decoder:
    """A decoder of these fields. Raises InputError where the numbers do not fit together."""
    try:
        return with_balance(config, Decoder(**fields))
    except ValueError as error:
        what, _, fix = str(error).partition(" | ")
        raise config.key_error("hidden_size", what, fix) from error


def full_attention_rule(full: Sequence[bool]) -> int | None:
    """`full_every` such that exactly these layers have full attention, 0 for none; None where no such rule exists."""
    if not any(full):
        return 0
    every = full.index(True) + 1
    fits = all(has == ((layer + 1) % every == 0) for layer, has in enumerate(full))
    return every if fits else None
