"""Writes a decoder as the config.json of the family that has such layers: the inverse of reading it."""

from collections.abc import Callable, Mapping
from typing import Any

from planner.errors import InputError
from planner.hf.decoders import FULL, SLIDING
from planner.hf.expert_balance import balance_keys
from planner.hf.hf_config import IGNORED_KEYS
from planner.hf.rope import scaling_keys
from planner.hf.write_hybrids import MAX_POSITIONS, bamba, hybrid_family, nemotron_h, routes_like_deepseek
from planner.specs.layers import Decoder, Module
from planner.specs.layers.head_widths import head_dim, kv_heads

ARCHITECTURES = {
    "bamba": "BambaForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}

POSITIONS = "max_position_embeddings"


def to_config(module: Module) -> dict[str, Any]:
    """A module as a config.json that transformers reads. Raises InputError where no family here has such layers."""
    write = CONFIG_WRITERS.get(type(module))
    config = write(module) if write else None
    if config is None:
        fix = f"a decoder as one of {', '.join(ARCHITECTURES)}"
        raise InputError("no config.json is written of such a module", where=type(module).__name__.lower(), fix=fix)
    return config


def to_config_like(module: Module, source: Mapping[str, Any]) -> dict[str, Any]:
    """A module as a config.json, with the names, tokens and positions of the file `source` that it began as."""
    own, text = to_config(module), source.get("text_config", source)
    decided = own.keys() - {POSITIONS}
    return own | {key: text[key] for key in sorted(text.keys() & IGNORED_KEYS - decided)}


def decoder_config(module: Decoder) -> dict[str, Any] | None:
    """A decoder as a config.json; None where no family has such layers. Sections of rotary pairs are not written: they
    change nothing in text alone, which is what such a decoder reads.
    """
    kind = decoder_family(module)
    if kind is None:
        return None
    head = {"architectures": [ARCHITECTURES[kind]], "model_type": kind, "vocab_size": module.vocab}
    if kind == "gpt2":
        return head | gpt2(module)
    if kind == "nemotron_h":
        return head | nemotron_h(module)
    if kind == "bamba":
        return head | llama_keys(module) | bamba(module)
    config = head | llama_keys(module)
    if kind == "glm4_moe":
        return config | glm4_moe(module)
    if kind == "llama":
        config["mlp_bias"] = module.bias == "all"
    if kind != "mistral" and kind != "mixtral" and kind != "qwen2":
        config["attention_bias"] = module.bias != "none"
    if kind in ("mistral", "mixtral"):
        config["sliding_window"] = module.window
    if kind in ("qwen2", "qwen3", "qwen3_moe"):
        config |= window_keys(module)
    return config | expert_keys(module, kind)


def decoder_family(module: Decoder) -> str | None:
    """The family with such layers; None where there is none."""
    if module.pattern:
        return hybrid_family(module)
    if is_olmo(module) or is_glm(module):
        return "olmo2" if module.moe is None else "glm4_moe"
    if module.latent or module.sinks or not plain_layers(module):
        return None
    if module.positions == "learned":
        return "gpt2" if module.moe is None and module.window is None else None
    if module.moe:
        if module.qk_norm and not module.full_every and module.bias in ("none", "attention"):
            return "qwen3_moe"
        return (
            "mixtral" if (module.bias, module.full_every, moe_layers(module).count(False)) == ("none", 0, 0) else None
        )
    if module.qk_norm:
        return "qwen3" if module.bias in ("none", "attention") and module.qk_norm is True else None
    if module.bias == "qkv":
        return "qwen2"
    if module.window is None:
        return "llama"
    return "mistral" if module.bias == "none" and not module.full_every else None


def plain_layers(module: Decoder) -> bool:
    """Whether layers are in the style of GPT-2 or of Llama, with plain experts or none."""
    if unwritten_parts(module):
        return False
    foreign = module.positions in ("none", "relative") or module.cross or module.added_words or module.scaled_head
    if foreign or module.activation or module.rotary_share < 1:
        return False
    styles = (False, "layer", "all", False), (True, "rms", module.bias, module.qk_norm)  # GPT-2, Llama
    style = module.gated, module.norm, module.bias, module.qk_norm
    moe = module.moe
    plain = moe is None or not (moe.shared_ffn or moe.router_bias or moe.scores != "softmax" or moe.capacity)
    normalised = moe is None or module.qk_norm is True or (moe.normalised and moe.ffn == module.ffn)
    return style == styles[module.positions == "rope"] and plain and normalised


def llama_like(module: Decoder) -> bool:
    """Whether a decoder says nothing beside Llama's shape, with biases, norms and experts."""
    shape = {name: getattr(module, name) for name in LLAMA_SHAPE}
    return Decoder(**shape) == module


LLAMA_SHAPE = (
    "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "tied", "norm_eps", "rope_base",
    "rope_scaling", "bias", "norms", "qk_norm", "moe", "rotary_share", "trained",
)  # fmt: skip


def is_olmo(module: Decoder) -> bool:
    """Whether layers are OLMo 2's: norms of outputs, and of all heads' queries and keys together."""
    own = module.norms, module.qk_norm, module.rotary_share
    return own == ("behind", "whole", 1.0) and not module.moe and module.bias != "qkv" and llama_like(module)


def is_glm(module: Decoder) -> bool:
    """Whether layers are GLM-4.5's: experts that are routed as DeepSeek-V3's, beside shared ones of the same width."""
    moe, style = module.moe, (module.norms, module.qk_norm in (True, False), module.bias in ("none", "qkv"))
    routed = moe is not None and routes_like_deepseek(moe) and moe.shared_ffn % moe.ffn == 0
    plain = moe is not None and not (moe.latent or moe.shared_gate or moe.counts) and moe.every == 1
    return style == ("before", True, True) and routed and plain and llama_like(module)


def glm4_moe(module: Decoder) -> dict[str, Any]:
    """Keys of GLM-4.5 besides those of Llama's shape."""
    moe = module.moe
    assert moe is not None
    return {
        "attention_bias": module.bias == "qkv",
        "use_qk_norm": module.qk_norm,
        "partial_rotary_factor": module.rotary_share,
        "n_routed_experts": moe.experts,
        "num_experts_per_tok": moe.topk,
        "moe_intermediate_size": moe.ffn,
        "n_shared_experts": moe.shared_ffn // moe.ffn,
        "first_k_dense_replace": moe.dense_layers,
        "norm_topk_prob": moe.normalised,
        "routed_scaling_factor": moe.scale,
        "n_group": moe.groups,
        "topk_group": moe.group_topk,
    }


def unwritten_parts(module: Decoder) -> bool:
    """Whether a decoder has parts that no config.json written here has."""
    moe = module.moe
    routed = moe is not None and (moe.scale != 1 or moe.groups > 1 or moe.shared_gate or moe.latent)
    apart = module.norms != "before" or module.qk_norm == "whole"
    return bool(apart or module.linear_attention or module.indexer or module.attention_gate or routed)


def llama_keys(module: Decoder) -> dict[str, Any]:
    """Keys that Llama and its descendants have in common."""
    return {
        "hidden_size": module.hidden,
        "intermediate_size": module.ffn,
        "num_hidden_layers": module.layers,
        "num_attention_heads": module.heads,
        "num_key_value_heads": kv_heads(module),
        "head_dim": head_dim(module),
        "hidden_act": "silu",
        "rms_norm_eps": module.norm_eps,
        "rope_theta": module.rope_base,
        **scaling_keys(module.rope_scaling),
        "tie_word_embeddings": module.tied,
        POSITIONS: MAX_POSITIONS,
    }


def gpt2(module: Decoder) -> dict[str, Any]:
    """Keys of GPT-2's shape."""
    return {
        "n_embd": module.hidden,
        "n_inner": module.ffn,
        "n_layer": module.layers,
        "n_head": module.heads,
        "n_positions": module.max_positions,
        "activation_function": "gelu",
        "layer_norm_epsilon": module.norm_eps,
        "tie_word_embeddings": module.tied,
    }


def window_keys(module: Decoder) -> dict[str, Any]:
    """Qwen's keys of sliding windows."""
    kinds = [SLIDING if module.window_of(layer) else FULL for layer in range(module.layers)]
    return {"use_sliding_window": SLIDING in kinds, "sliding_window": module.window, "layer_types": kinds}


def moe_layers(module: Decoder) -> list[bool]:
    """Whether each layer has experts."""
    return [module.layer_kind(layer) == "moe" for layer in range(module.layers)]


def expert_keys(module: Decoder, kind: str) -> dict[str, Any]:
    """Keys of the experts of Mixtral or Qwen3-MoE."""
    moe = module.moe
    if moe is None:
        return {}
    config: dict[str, Any] = {"num_experts_per_tok": moe.topk, **balance_keys(module)}
    if kind == "mixtral":
        return config | {"num_local_experts": moe.experts}
    dense = [layer for layer, has in enumerate(moe_layers(module)) if not has]
    config |= {"num_experts": moe.experts, "moe_intermediate_size": moe.ffn, "decoder_sparse_step": 1}
    return config | {"mlp_only_layers": dense, "norm_topk_prob": moe.normalised}


CONFIG_WRITERS: dict[type, Callable[[Any], dict[str, Any] | None]] = {Decoder: decoder_config}
