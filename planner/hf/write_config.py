"""Writes a decoder as the config.json of a family that reads it back as the same decoder: the first of those whose
weights have names here (hf/weight_names.py).
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isclose
from typing import Any

from planner.errors import InputError
from planner.hf.decoders import FULL, SLIDING, read_module
from planner.hf.expert_balance import balance_keys
from planner.hf.families import DECODERS
from planner.hf.hf_config import IGNORED_KEYS, HfConfig
from planner.hf.hybrid_decoders import LINEAR
from planner.hf.rope import scaling_keys
from planner.hf.same_function import spelled_out
from planner.specs.base import Difference, differences
from planner.specs.layers import Decoder, Module
from planner.specs.layers.components import Experts
from planner.specs.layers.head_widths import head_dim, kv_heads

ARCHITECTURES = {  # the plainest first
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "bamba": "BambaForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "phi3": "Phi3ForCausalLM",
}
FUSED_KINDS = {"phi3"}  # which are read alone: their files have several matrices in one tensor
POSITIONS, MAX_POSITIONS = "max_position_embeddings", 2**20  # of a model without a limit
UNWRITTEN = {  # what trains a module, or how its kernels work; sections of rotary pairs change nothing in text alone
    "trained", "moe.counts", "rope_sections", "rope_interleaved", "linear_attention.chunk",
}  # fmt: skip


def to_config(module: Module) -> dict[str, Any]:
    """A module as a config.json that transformers reads. Raises InputError where no family here has such layers."""
    written: Any = module
    kind = FAMILY_OF_MODULE.get(type(module), lambda module: None)(written)
    if kind is None or kind in FUSED_KINDS:
        fix = f"a decoder as one of {', '.join(kind for kind in ARCHITECTURES if kind not in FUSED_KINDS)}"
        raise InputError("no config.json is written of such a module", where=type(module).__name__.lower(), fix=fix)
    config = HfConfig(stated_keys(written, kind), "config.json")
    read_module(config, DECODERS[kind])
    return {key: value for key, value in config.values.items() if key in config.read_keys | IGNORED_KEYS}


def to_config_like(module: Module, source: Mapping[str, Any]) -> dict[str, Any]:
    """A module as a config.json, with the names, tokens and positions of the file `source` that it began as."""
    own, text = to_config(module), source.get("text_config", source)
    decided = own.keys() - {POSITIONS}
    return own | {key: text[key] for key in sorted(text.keys() & IGNORED_KEYS - decided)}


@lru_cache(maxsize=256)  # every name of a weight asks
def decoder_family(module: Decoder) -> str | None:
    """The first family that reads such a decoder of what is written of it; None where there is none."""
    return next((kind for kind in ARCHITECTURES if reads_back(module, kind)), None)


def reads_back(module: Decoder, kind: str) -> bool:
    """Whether a family reads a decoder of its keys as what it is."""
    config = HfConfig(stated_keys(module, kind), "config.json")
    try:
        read = read_module(config, DECODERS[kind])
    except InputError:
        return False
    found = differences(spelled_out(module), spelled_out(read))
    return not any(note.kind == "left out" for note in config.notes) and all(
        each.field in UNWRITTEN or is_rounding(each) for each in found
    )


def is_rounding(found: Difference) -> bool:
    """Whether two numbers differ by no more than they are computed with."""
    numbers = isinstance(found.one, float) and isinstance(found.other, float)
    return numbers and isclose(found.one, found.other, rel_tol=1e-12)


def stated_keys(module: Decoder, kind: str) -> dict[str, Any]:
    """Everything that a decoder says, in the keys of this family, and in others that it does not read."""
    head = {"architectures": [ARCHITECTURES[kind]], "model_type": kind}
    return head | shape_keys(module) | layer_keys(module) | OWN_KEYS.get(kind, expert_keys)(module)


def shape_keys(module: Decoder) -> dict[str, Any]:
    """Keys that Llama and its descendants have in common."""
    return {
        "vocab_size": module.vocab,
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


def layer_keys(module: Decoder) -> dict[str, Any]:
    """Keys of biases, norms, windows and rotated dims, and of linear attention."""
    kinds = [SLIDING if module.window_of(layer) else FULL for layer in range(module.layers)]
    if module.linear_attention:
        kinds = [LINEAR if word.startswith("L") else FULL for word in module.pattern.split()]
    keys = {
        "attention_bias": module.bias != "none",
        "mlp_bias": module.bias == "all",
        "use_qk_norm": module.qk_norm is True,
        "partial_rotary_factor": module.rotary_share,
        "use_sliding_window": SLIDING in kinds,
        "sliding_window": module.window,
        "layer_types": kinds,
        "attn_output_gate": module.attention_gate,
    }
    linear = module.linear_attention
    if linear:
        keys |= {
            "linear_num_value_heads": linear.heads,
            "linear_num_key_heads": linear.key_heads,
            "linear_key_head_dim": linear.key_dim,
            "linear_value_head_dim": linear.value_dim,
            "linear_conv_kernel_dim": linear.conv,
        }
    return keys


def routed_keys(moe: Experts) -> dict[str, Any]:
    """Keys of routers and experts that several families share."""
    return {
        "num_experts_per_tok": moe.topk,
        "moe_intermediate_size": moe.ffn,
        "norm_topk_prob": moe.normalised,
        "n_routed_experts": moe.experts,
        "routed_scaling_factor": moe.scale,
        "n_group": moe.groups,
        "topk_group": moe.group_topk,
    }


def expert_keys(module: Decoder) -> dict[str, Any]:
    """Keys of experts behind a gated MLP's place."""
    moe = module.moe
    if moe is None:
        return {}
    blocks = [module.layer_kind(layer) for layer in range(module.layers)]
    return routed_keys(moe) | {
        "num_experts": moe.experts,
        "shared_expert_intermediate_size": moe.shared_ffn,
        "n_shared_experts": moe.shared_ffn // moe.ffn,
        "first_k_dense_replace": moe.dense_layers,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [layer for layer, kind in enumerate(blocks) if kind != "moe" and "experts" not in kind],
        **balance_keys(module),
    }


def mixtral_keys(module: Decoder) -> dict[str, Any]:
    """Keys of Mixtral, whose experts are counted under another name."""
    keys = expert_keys(module)
    return {"num_local_experts" if key == "num_experts" else key: value for key, value in keys.items()}


def gpt2_keys(module: Decoder) -> dict[str, Any]:
    """Keys of GPT-2's shape."""
    return {
        "n_embd": module.hidden,
        "n_inner": module.ffn,
        "n_layer": module.layers,
        "n_head": module.heads,
        "n_positions": module.max_positions,
        POSITIONS: module.max_positions,
        "activation_function": "gelu",
        "layer_norm_epsilon": module.norm_eps,
    }


def bamba_keys(module: Decoder) -> dict[str, Any]:
    """Keys of Bamba's state spaces."""
    space = module.state_space
    if space is None:
        return {}
    full = [layer for layer, word in enumerate(module.pattern.split()) if word == "*-"]
    steps = {} if space.step_max is None else {"time_step_limit": [space.step_min, space.step_max]}
    return {
        "attn_layer_indices": full,
        "mamba_n_heads": space.heads,
        "mamba_d_head": space.head_dim,
        "mamba_n_groups": space.groups,
        "mamba_d_state": space.state,
        "mamba_d_conv": space.conv,
        "mamba_expand": space.inner_width // module.hidden,
        "mamba_chunk_size": space.chunk,
        "mamba_conv_bias": space.conv_bias,
        "mamba_proj_bias": space.bias,
        **steps,
    }


def nemotron_keys(module: Decoder) -> dict[str, Any]:
    """Keys of Nemotron-H's state spaces and experts."""
    space, moe = module.state_space, module.moe
    if space is None:
        return {}
    experts = routed_keys(moe) | {"moe_shared_expert_intermediate_size": moe.shared_ffn} if moe else {}
    experts |= {"moe_latent_size": moe.latent} if moe and moe.latent else {}
    return {
        "hybrid_override_pattern": module.pattern.replace(" ", ""),
        "mlp_hidden_act": module.mlp_activation,
        "layer_norm_epsilon": module.norm_eps,
        "mamba_num_heads": space.heads,
        "mamba_head_dim": space.head_dim,
        "ssm_state_size": space.state,
        "n_groups": space.groups,
        "conv_kernel": space.conv,
        "use_conv_bias": space.conv_bias,
        "use_bias": space.bias,
        "chunk_size": space.chunk,
        "time_step_min": space.step_min,
        **experts,
    }


OWN_KEYS: dict[str, Callable[[Decoder], dict[str, Any]]] = {
    "mixtral": mixtral_keys,
    "gpt2": gpt2_keys,
    "bamba": bamba_keys,
    "nemotron_h": nemotron_keys,
}
FAMILY_OF_MODULE: dict[type, Callable[[Any], str | None]] = {Decoder: decoder_family}
