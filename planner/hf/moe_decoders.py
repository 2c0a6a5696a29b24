"""Mixture-of-experts decoders, with latent attention or without."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from planner.hf.decoders import MOST_LAYERS, attention_bias, build_decoder, llama_fields, window_fields
from planner.hf.hf_config import HfConfig
from planner.specs.layers import Decoder, kind_counts
from planner.specs.layers.components import Experts, LatentAttentionShape

Scores = Literal["softmax", "sigmoid"]


def mixtral(config: HfConfig) -> Decoder:
    """Mixtral (arXiv 2401.04088): Mistral with experts in every layer."""
    config.assume(rms_norm_eps=1e-5, rope_theta=1e6, sliding_window=None, num_key_value_heads=8)
    config.assume(num_local_experts=8, num_experts_per_tok=2)
    fields = {**llama_fields(config), "window": config.count_or_none("sliding_window")}
    width = config.count("intermediate_size")
    return build_decoder(config, {**fields, "moe": expert_fields(config, "num_local_experts", width)})


def qwen2_moe(config: HfConfig) -> Decoder:
    """Qwen2-MoE: its shared expert has a gate of its own, which a spec does not have."""
    config.assume(qkv_bias=True, num_key_value_heads=16)
    fields = {**llama_fields(config), "bias": "qkv" if config.flag("qkv_bias") else "none"}
    fields |= window_fields(
        config, lambda layer: layer % 2 == 0 and layer < (config.count_or_none("max_window_layers") or 0)
    )
    module = build_decoder(
        config, {**fields, "moe": qwen_experts(config, config.count_or_none("shared_expert_intermediate_size"))}
    )
    if module.moe and module.moe.shared_ffn:
        gates = module.hidden * kind_counts(module)["moe"]
        config.leave_out("the sigmoid gate of the shared expert, one vector a layer", gates)
    return module


def qwen3_moe(config: HfConfig) -> Decoder:
    """Qwen3-MoE (arXiv 2505.09388): norms of queries and keys, no shared experts."""
    config.assume(num_key_value_heads=4)
    fields = {
        **llama_fields(config),
        "bias": attention_bias(config),
        "qk_norm": True,
        **window_fields(config, lambda layer: True),
    }
    return build_decoder(config, {**fields, "moe": qwen_experts(config, None)})


def gpt_oss(config: HfConfig) -> Decoder:
    """The gpt-oss models (arXiv 2508.10925): biases in experts and router, sinks, every other layer with a window."""
    config.assume(rope_theta=150000.0, rms_norm_eps=1e-5, sliding_window=128, attention_bias=True)
    config.assume(num_key_value_heads=8)
    if not config.flag("attention_bias"):
        raise config.key_error(
            "attention_bias", "experts with biases beside attention without cannot be expressed", "true"
        )
    fields = {**llama_fields(config), "bias": "all", "sinks": True}
    fields |= window_fields(config, lambda layer: layer % 2 == 0, always=True)
    moe = expert_fields(config, "num_local_experts", config.count("intermediate_size"), router_bias=True)
    return build_decoder(config, {**fields, "moe": moe})


def deepseek_v2(config: HfConfig) -> Decoder:
    """DeepSeek-V2 (arXiv 2405.04434): a softmax router."""
    config.assume(scoring_func="softmax", topk_method="greedy", norm_topk_prob=False, routed_scaling_factor=1.0)
    return deepseek(config)


def deepseek_v3(config: HfConfig) -> Decoder:
    """DeepSeek-V3 (arXiv 2412.19437) and Kimi K2: a sigmoid router with biases."""
    config.assume(scoring_func="sigmoid", topk_method="noaux_tc", norm_topk_prob=True, routed_scaling_factor=2.5)
    config.assume(n_group=8, topk_group=4)
    return deepseek(config)


def deepseek(config: HfConfig) -> Decoder:
    """Latent attention (arXiv 2405.04434); experts behind the first dense layers (arXiv 2401.06066)."""
    config.assume(q_lora_rank=None, first_k_dense_replace=0, moe_layer_freq=1, n_shared_experts=None, n_group=None)
    config.read_keys |= {"num_key_value_heads", "head_dim", "qk_head_dim"}  # which follow from the others
    config.assume(num_key_value_heads=None)
    latent = LatentAttentionShape(
        q_rank=config.count_or_none("q_lora_rank") or 0,
        kv_rank=config.count("kv_lora_rank"),
        rope_dim=config.count("qk_rope_head_dim"),
        nope_dim=config.count("qk_nope_head_dim"),
        value_dim=config.count("v_head_dim"),
    )
    fields = {
        **llama_fields(config),
        "kv_heads": None,
        "head_dim": None,
        "bias": attention_bias(config),
        "latent": latent,
    }
    scaling = config.values.get("rope_scaling") or config.values.get("rope_parameters")
    if isinstance(scaling, dict) and scaling.get("mscale_all_dim"):  # beside the rotated part, all scores are scaled
        config.leave_out(f"the scale of attention scores by mscale_all_dim {scaling['mscale_all_dim']}")
    return build_decoder(config, {**fields, "moe": deepseek_experts(config)})


def deepseek_experts(config: HfConfig) -> Experts | None:
    """DeepSeek's routed and shared experts; None where the file has none."""
    if config.count_or_none("n_routed_experts") is None:
        return None
    width, shared = config.count("moe_intermediate_size"), config.count_or_none("n_shared_experts") or 0
    first, step = config.count_or_none("first_k_dense_replace") or 0, config.count("moe_layer_freq")
    layers = config.count("num_hidden_layers", MOST_LAYERS)
    sparse = [layer >= first and layer % step == 0 for layer in range(layers)]
    config.expect("routed_scaling_factor", (1, 1.0))
    groups = config.count_or_none("n_group") or 1
    if groups > 1:
        config.leave_out(f"choosing experts from {config.value('topk_group')} of {groups} groups of them")
    scores: Any = config.text("scoring_func")
    if scores not in get_args(Scores):
        raise config.wrong_value("scoring_func", "softmax or sigmoid")
    return expert_fields(
        config,
        "n_routed_experts",
        width,
        **moe_layer_fields(config, sparse, "first_k_dense_replace"),
        shared_ffn=shared * width,
        router_bias=config.text("topk_method") == "noaux_tc",
        scores=scores,
        normalised=config.flag("norm_topk_prob"),
    )


def qwen_experts(config: HfConfig, shared: int | None) -> Experts | None:
    """Experts in every k-th layer, except for layers that are listed; None where there are none."""
    config.assume(decoder_sparse_step=1, mlp_only_layers=None, norm_topk_prob=False)
    key = "num_experts" if "num_experts" in config.values else "num_local_experts"
    step, dense = config.count("decoder_sparse_step"), config.numbers("mlp_only_layers")
    layers = config.count("num_hidden_layers", MOST_LAYERS)
    sparse = [layer not in dense and (layer + 1) % step == 0 for layer in range(layers)]
    if config.count_or_none(key) is None or not any(sparse):
        return None
    return expert_fields(
        config,
        key,
        config.count("moe_intermediate_size"),
        **moe_layer_fields(config, sparse, "mlp_only_layers" if dense else "decoder_sparse_step"),
        shared_ffn=shared or 0,
        normalised=config.flag("norm_topk_prob"),
    )


def moe_layer_fields(config: HfConfig, sparse: list[bool], key: str) -> dict[str, int]:
    """`dense_layers` and `every` for these MoE layers. Raises InputError naming `key` where no such rule gives them."""
    pattern = moe_layer_rule(sparse) if any(sparse) else None
    if pattern is None:
        fix = "a spec has experts in every k-th layer behind the first dense ones"
        raise config.key_error(key, "these layers with experts cannot be expressed", fix)
    return {"dense_layers": pattern[0], "every": pattern[1]}


def expert_fields(config: HfConfig, key: str, width: int, **fields: Any) -> Experts:
    """Experts of this width. Raises InputError where the numbers do not fit together."""
    try:
        return Experts(experts=config.count(key), topk=config.count("num_experts_per_tok"), ffn=width, **fields)
    except ValueError as error:
        what, _, fix = str(error).partition(" | ")
        raise config.key_error("num_experts_per_tok", what, fix) from error


def moe_layer_rule(sparse: Sequence[bool]) -> tuple[int, int] | None:
    """(dense_layers, every) such that exactly these layers (at least one) have experts; None where no such rule exists.

    Layer i, from 0, has experts where i + 1 - dense_layers is a positive multiple of `every`.
    """
    first = sparse.index(True)
    rest = [layer for layer, has in enumerate(sparse) if has and layer > first]
    every = rest[0] - first if rest else max(1, len(sparse) - first)
    dense = first + 1 - every
    fits = dense >= 0 and all(
        has == (layer >= dense and (layer + 1 - dense) % every == 0) for layer, has in enumerate(sparse)
    )
    return (dense, every) if fits else None
