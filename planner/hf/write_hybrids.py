"""Writes decoders with state spaces as the config.json of Nemotron-H or Bamba: the inverse of hf/hybrid_decoders.py."""

from typing import Any

from planner.hf.hybrid_decoders import BAMBA_ROTARY_SHARE
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts, StateSpace
from planner.specs.layers.head_widths import head_dim, kv_heads

MAX_POSITIONS = 2**20  # max_position_embeddings of a model without a limit


def hybrid_family(module: Decoder) -> str | None:
    """The family of a decoder with a pattern of layers; None where there is none."""
    space, words = module.state_space, {*module.pattern.split()}
    plain = module.latent is None and module.window is None and not (module.sinks or module.qk_norm)
    if space is None or not plain or module.norm != "rms":
        return None
    if words <= {"M-", "*-"}:
        return "bamba" if is_bamba(module, space) else None
    return "nemotron_h" if all(len(word) == 1 for word in words) and is_nemotron(module, space) else None


def is_bamba(module: Decoder, space: StateSpace) -> bool:
    """Whether layers with attention or a state space and an MLP are Bamba's."""
    rotary = module.positions == "rope" and module.rotary_share == BAMBA_ROTARY_SHARE
    steps = space.step_max is not None or space.step_min == 0
    gated = module.gated and module.mlp_activation == "silu"
    return rotary and steps and gated and module.bias != "qkv" and space.inner_width % module.hidden == 0


def is_nemotron(module: Decoder, space: StateSpace) -> bool:
    """Whether layers of one block each are Nemotron-H's."""
    style = module.positions, module.gated, module.bias, module.tied
    return style == ("none", False, "none", False) and space.step_max is None and routes_like_deepseek(module.moe)


def routes_like_deepseek(moe: Experts | None) -> bool:
    """Whether experts are routed as DeepSeek-V3's, beside shared experts; true without experts."""
    return moe is None or (
        moe.scores == "sigmoid" and moe.router_bias and moe.shared_ffn > 0 and not moe.capacity and not moe.balance
    )


def bamba(module: Decoder) -> dict[str, Any]:
    """Keys of Bamba besides those of Llama's shape."""
    space = module.state_space
    assert space is not None
    full = [layer for layer, word in enumerate(module.pattern.split()) if word == "*-"]
    steps = {} if space.step_max is None else {"time_step_limit": [space.step_min, space.step_max]}
    return {
        "attention_bias": module.bias != "none",
        "mlp_bias": module.bias == "all",
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


def nemotron_h(module: Decoder) -> dict[str, Any]:
    """Keys of Nemotron-H."""
    space, moe = module.state_space, module.moe
    assert space is not None
    experts = {
        "n_routed_experts": moe.experts,
        "num_experts_per_tok": moe.topk,
        "moe_intermediate_size": moe.ffn,
        "moe_shared_expert_intermediate_size": moe.shared_ffn,
        "norm_topk_prob": moe.normalised,
        "routed_scaling_factor": moe.scale,
        "n_group": moe.groups,
        "topk_group": moe.group_topk,
        **({"moe_latent_size": moe.latent} if moe.latent else {}),
    } if moe else {}  # fmt: skip
    return {
        "hidden_size": module.hidden,
        "intermediate_size": module.ffn,
        "hybrid_override_pattern": module.pattern.replace(" ", ""),
        "num_hidden_layers": module.layers,
        "num_attention_heads": module.heads,
        "num_key_value_heads": kv_heads(module),
        "head_dim": head_dim(module),
        "mlp_hidden_act": module.mlp_activation,
        "layer_norm_epsilon": module.norm_eps,
        "tie_word_embeddings": module.tied,
        "max_position_embeddings": MAX_POSITIONS,
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
