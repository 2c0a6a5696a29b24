"""Decoders whose layers are of several kinds, as a pattern: state spaces in some (Nemotron-H, arXiv 2504.03624; Bamba),
linear attention (Qwen3-Next), or cross attention (Llama 3.2 Vision).
"""

from math import inf
from typing import Any

from planner.hf.decoders import FULL, MOST_LAYERS, Fields, counts, flags, layer_types, one_of
from planner.hf.hf_config import MOST, HfConfig
from planner.hf.moe_decoders import ExpertKeys, experts, qwen_layers
from planner.specs.layers.components import LinearAttention, StateSpace
from planner.specs.layers.stack import Activation

LINEAR = "linear_attention"
LAYER_LETTERS = {LINEAR: "M", "mamba": "M", FULL: "*", "attention": "*", "mlp": "-", "moe": "E"}
NEMOTRON_DEFAULTS: dict[str, Any] = {
    "head_dim": 128, "num_key_value_heads": 8, "layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2",
    "use_bias": False, "use_conv_bias": True, "conv_kernel": 4, "chunk_size": 128,
    "n_groups": 8, "time_step_min": 0.001, "time_step_limit": [0.0, inf], "moe_latent_size": None, "n_group": 1,
    "routed_scaling_factor": 1.0, "norm_topk_prob": True, "num_experts_per_tok": 2, "n_routed_experts": 8,
    "topk_group": 1, "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688,
}  # fmt: skip
NEMOTRON_ONLY = {"mlp_bias": (False,), "mamba_hidden_act": ("silu", "swish")}
UNUSED_KEYS = {  # initialisation, generation, other kernels, or what follows from other keys
    "expand", "mamba_expand", "time_step_max", "mamba_dt_max", "time_step_floor", "mamba_dt_init_floor",
    "time_step_rank", "rescale_prenorm_residual", "num_logits_to_keep", "use_mamba_kernels", "mamba_ssm_cache_dtype",
    "moe_shared_expert_overlap", "n_shared_experts", "topk_group", "mtp_layers_block_type",
    "mtp_hybrid_override_pattern", "partial_rotary_factor", "rope_theta", "routed_scaling_factor", "norm_topk_prob",
    "n_group", *(key for key in NEMOTRON_DEFAULTS if "expert" in key or "moe" in key),
}  # fmt: skip
NEMOTRON_SPACE = counts(
    heads="mamba_num_heads", head_dim="mamba_head_dim", state="ssm_state_size", groups="n_groups|mamba_n_groups",
    conv="conv_kernel|mamba_d_conv", chunk="chunk_size|mamba_chunk_size",
)  # fmt: skip
NEMOTRON_FLAGS = flags(conv_bias="use_conv_bias|mamba_conv_bias", bias="use_bias")
NEMOTRON_EXPERTS = ExpertKeys(
    "n_routed_experts", shared="moe_shared_expert_intermediate_size", scores="sigmoid", bias=True,
    normalised="norm_topk_prob", scale="routed_scaling_factor", groups=("n_group", "topk_group"),
    latent="moe_latent_size",
)  # fmt: skip
BAMBA_DEFAULTS: dict[str, Any] = {
    "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "attn_layer_indices": None, "mamba_n_heads": 128,
    "mamba_d_head": "auto", "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2,
    "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_proj_bias": False, "time_step_limit": [0.0, inf],
}  # fmt: skip
BAMBA_SPACE = counts(
    heads="mamba_n_heads", state="mamba_d_state", groups="mamba_n_groups", conv="mamba_d_conv", chunk="mamba_chunk_size"
)
BAMBA_ROTARY_SHARE = 0.5  # rotary share of a head, in every Bamba
DELTA = counts(
    heads="linear_num_value_heads", key_heads="linear_num_key_heads", key_dim="linear_key_head_dim",
    value_dim="linear_value_head_dim", conv="linear_conv_kernel_dim",
)  # fmt: skip
MLLAMA_ADDED_WORDS = 8  # rows that the embedding has for images, and the head has not: a constant in the code


def nemotron_layers(config: HfConfig) -> Fields:
    """Nemotron-H: one block a layer; attention without positions."""
    pattern, eps = nemotron_pattern(config), config.number("layer_norm_epsilon")
    for key, value in {"rms_norm_eps": eps, "norm_eps": eps, "attention_bias": False, "mamba_proj_bias": False}.items():
        config.assume(**{key: value}).expect(key, (value,))
    activation = one_of(config, "mlp_hidden_act", Activation)
    optional: Fields = {"state_space": nemotron_space(config)} if "M" in pattern else {}
    optional |= experts(NEMOTRON_EXPERTS)(config) if "E" in pattern else {}
    fields = {"layers": len(pattern), "pattern": " ".join(pattern), "activation": activation}
    return {**fields, "gated": False, "positions": "none", **optional}


def nemotron_pattern(config: HfConfig) -> str:
    """A letter for each layer: from a list of words, or, in files before transformers 5, the letters as they are."""
    key = config.named("hybrid_override_pattern|layers_block_type")
    kinds: Any = config.value(key) if key in config.values else None
    if not kinds or not isinstance(kinds, str | list) or not all(isinstance(kind, str) for kind in kinds):
        raise config.key_error("layers_block_type", "no list of layers", f"a list of {', '.join(LAYER_LETTERS)}")
    letters = [*kinds] if isinstance(kinds, str) else [LAYER_LETTERS.get(str(kind), str(kind)) for kind in kinds]
    unknown = sorted({*letters} - {*LAYER_LETTERS.values()})
    if unknown:
        what = f"layers of the kind `{unknown[0]}` cannot be expressed"
        raise config.key_error(key, what, f"one of {', '.join(LAYER_LETTERS)}")
    layers = config.value("num_hidden_layers") if "num_hidden_layers" in config.values else len(letters)
    if layers != len(letters) or layers > MOST_LAYERS:
        what = f"{layers} layers, of which {key} names {len(letters)}"
        raise config.key_error("num_hidden_layers", what, f"one number, up to {MOST_LAYERS:,}")
    return "".join(letters)


def nemotron_space(config: HfConfig) -> StateSpace:
    """The state space of Nemotron-H's Mamba-2 layers."""
    if time_step_limits(config) != (0.0, None):
        config.leave_out_key("time_step_limit")
    fields = {**NEMOTRON_SPACE(config), **NEMOTRON_FLAGS(config)}
    step_min = config.number("time_step_min|mamba_dt_min")
    return config.made(StateSpace, "n_groups|mamba_n_groups", **fields, step_min=step_min)


def bamba_layers(config: HfConfig) -> Fields:
    """Bamba: a state space or attention, and an MLP, in each layer."""
    full, layers = config.numbers("attn_layer_indices"), config.count("num_hidden_layers", MOST_LAYERS)
    config.read_keys |= {"num_logits_to_keep"}
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    width = int(BAMBA_ROTARY_SHARE * (config.count_or_none("head_dim") or hidden // heads))
    config.assume(attn_rotary_emb=width).expect("attn_rotary_emb", (width,))
    words = ["*-" if layer in full else "M-" for layer in range(layers)]
    state_space = bamba_space(config, hidden)
    optional = {"state_space": state_space} if "M-" in words else {}
    return {**optional, "rotary_share": BAMBA_ROTARY_SHARE, "pattern": " ".join(words)}


def bamba_space(config: HfConfig, hidden: int) -> StateSpace:
    """The state space of Bamba's Mamba-2 layers."""
    heads, inner = config.count("mamba_n_heads"), config.count("mamba_expand") * hidden
    width = inner // heads if config.value("mamba_d_head") == "auto" else config.count("mamba_d_head")
    if width * heads != inner or width > MOST:
        what = f"{heads} heads of {width} are not mamba_expand x hidden_size = {inner}"
        raise config.key_error("mamba_d_head", what, "auto, and a number of heads that divides it")
    least, most = time_step_limits(config)
    fields = {**BAMBA_SPACE(config), **flags(conv_bias="mamba_conv_bias", bias="mamba_proj_bias")(config)}
    own = {"head_dim": width, "step_min": least, "step_max": most}
    return config.made(StateSpace, "mamba_n_groups", **fields, **own)


def delta_layers(config: HfConfig, routes: bool = True) -> Fields:
    """Linear attention by the gated delta rule, with full attention in each k-th layer (Qwen3-Next, Qwen3.5), and an
    MLP behind either, or experts where the family `routes`.
    """
    layers, every = config.count("num_hidden_layers", MOST_LAYERS), config.count("full_attention_interval")
    types = layer_types(config, {LINEAR, FULL})
    types = types or [LINEAR if (layer + 1) % every else FULL for layer in range(layers)]
    routed, _ = qwen_layers(config, layers)
    sparse = routes and config.count_or_none("num_experts|num_local_experts") is not None
    words = [
        ("L" if kind == LINEAR else "*") + ("E" if has and sparse else "-")
        for kind, has in zip(types, routed, strict=True)
    ]
    shape = config.made(LinearAttention, "linear_num_value_heads", **DELTA(config))
    linear = {"linear_attention": shape} if LINEAR in types else {}
    return {"attention_gate": config.flag("attn_output_gate"), **linear, "pattern": " ".join(words)}


def mllama_layers(config: HfConfig) -> Fields:
    """Llama 3.2 Vision: cross_attention_layers have that in place of attention, norms of its heads, and gates."""
    words, layers = config.numbers("cross_attention_layers"), config.count("num_hidden_layers", MOST_LAYERS)
    if not words or words[-1] >= layers or sorted({*words}) != words:
        raise config.wrong_value("cross_attention_layers", f"a rising list of layers below {layers}")
    pattern = " ".join("X-" if layer in words else "*-" for layer in range(layers))
    own = {"added_words": MLLAMA_ADDED_WORDS, "cross": config.count("hidden_size"), "pattern": pattern}
    return {**own, "cross_norms": True, "cross_gates": True}


NO_LIMIT = ({"__float__": "Infinity"}, "Infinity", "inf", None)  # JSON has no infinity: how files write it
LARGEST_STEP = 1e15  # beyond which an upper bound is none


def time_step_limits(config: HfConfig) -> tuple[float, float | None]:
    """The least and largest time step; None: no upper limit, as infinity and numbers near the largest float are."""
    bounds = config.value("time_step_limit") or [0.0, inf]
    bounds = [inf if b in NO_LIMIT else b for b in bounds] if isinstance(bounds, list) else []
    if [type(each) in (int, float) for each in bounds] == [True, True]:
        least, most = bounds
        if 0 <= least <= LARGEST_STEP and most >= max(least, 1e-6):
            return float(least), None if most > LARGEST_STEP else float(most)
    raise config.wrong_value("time_step_limit", "a list of two numbers, the least and the most")
