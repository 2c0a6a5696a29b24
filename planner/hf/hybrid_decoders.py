"""Decoders whose layers are of several kinds, as a pattern: state spaces in some (Nemotron-H, arXiv 2504.03624; Bamba),
linear attention (Qwen3-Next), or cross attention (Llama 3.2 Vision).
"""

from math import inf
from typing import Any, get_args

from planner.hf.decoders import MOST_LAYERS, Fields
from planner.hf.hf_config import MOST, HfConfig
from planner.hf.moe_decoders import ExpertKeys, experts
from planner.specs.layers.components import LinearAttention, StateSpace
from planner.specs.layers.stack import Activation

LAYER_LETTERS = {"linear_attention": "M", "mamba": "M", "full_attention": "*", "attention": "*", "mlp": "-", "moe": "E"}
NEMOTRON_DEFAULTS: dict[str, Any] = {
    "head_dim": 128, "num_key_value_heads": 8, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
    "mlp_hidden_act": "relu2", "mlp_bias": False, "attention_bias": False, "mamba_hidden_act": "silu",
    "mamba_proj_bias": False, "use_bias": False, "use_conv_bias": True, "conv_kernel": 4, "chunk_size": 128,
    "n_groups": 8, "time_step_min": 0.001, "time_step_limit": [0.0, inf], "moe_latent_size": None, "n_group": 1,
    "routed_scaling_factor": 1.0, "norm_topk_prob": True, "num_experts_per_tok": 2, "n_routed_experts": 8,
    "topk_group": 1, "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688,
}  # fmt: skip
OLDER_KEYS = {  # earlier names of keys
    "head_dim": "attention_head_dim",
    "n_groups": "mamba_n_groups",
    "conv_kernel": "mamba_d_conv",
    "use_conv_bias": "mamba_conv_bias",
    "chunk_size": "mamba_chunk_size",
    "time_step_min": "mamba_dt_min",
}
UNUSED_KEYS = {  # initialisation, generation, other kernels, or what follows from other keys
    "expand", "mamba_expand", "time_step_max", "mamba_dt_max", "time_step_floor", "mamba_dt_init_floor",
    "time_step_rank", "rescale_prenorm_residual", "num_logits_to_keep", "use_mamba_kernels", "mamba_ssm_cache_dtype",
    "moe_shared_expert_overlap", "n_shared_experts", "topk_group", "mtp_layers_block_type",
    "mtp_hybrid_override_pattern",
}  # fmt: skip
EXPERT_KEYS = {key for key in NEMOTRON_DEFAULTS if "expert" in key or "moe" in key}
EXPERT_KEYS |= {"n_group", "routed_scaling_factor", "norm_topk_prob"}
BAMBA_DEFAULTS: dict[str, Any] = {
    "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "attn_layer_indices": None, "mamba_n_heads": 128,
    "mamba_d_head": "auto", "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2,
    "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_proj_bias": False, "time_step_limit": [0.0, inf],
}  # fmt: skip
BAMBA_ROTARY_SHARE = 0.5  # rotary share of a head, in every Bamba


def nemotron_h(config: HfConfig) -> Fields:
    """Nemotron-H: one block a layer; attention without positions, and without biases whatever the file says."""
    pattern, eps = nemotron_pattern(config), config.number("layer_norm_epsilon")
    config.assume(rms_norm_eps=eps, norm_eps=eps).expect("rms_norm_eps", (eps,))
    config.expect("norm_eps", (eps,))
    config.expect("attention_bias", (False,))
    if config.flag("mlp_bias"):
        raise config.key_error("mlp_bias", "biases of the MLP alone cannot be expressed", "a model without them")
    heads, head_dim = config.count("num_attention_heads"), config.count(key_in_file(config, "head_dim"))
    hidden, kv_heads = config.count("hidden_size"), config.count_or_none("num_key_value_heads")
    fields: Fields = {
        "layers": len(pattern),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": None if kv_heads == heads else kv_heads,
        "head_dim": None if head_dim * heads == hidden else head_dim,
        "ffn": config.count("intermediate_size"),
        "vocab": config.count("vocab_size"),
        "gated": False,
        "activation": nemotron_activation(config),
        "positions": "none",
        "tied": config.flag("tie_word_embeddings"),
        "norm_eps": eps,
        "pattern": " ".join(pattern),
        "state_space": nemotron_space(config) if "M" in pattern else None,
        **(experts(NEMOTRON_EXPERTS)(config) if "E" in pattern else {}),
    }
    config.read_keys |= EXPERT_KEYS
    return fields


NEMOTRON_EXPERTS = ExpertKeys(
    "n_routed_experts", shared="moe_shared_expert_intermediate_size", scores="sigmoid", bias=True,
    normalised="norm_topk_prob", scale="routed_scaling_factor", groups=("n_group", "topk_group"),
    latent="moe_latent_size",
)  # fmt: skip


def delta_layers(config: HfConfig) -> Fields:
    """Linear attention by the gated delta rule, with full attention in each k-th layer (Qwen3-Next, Qwen3.5), and an
    MLP or experts behind either.
    """
    layers, types = config.count("num_hidden_layers", MOST_LAYERS), config.value("layer_types")
    every = config.count("full_attention_interval")
    types = types or ["linear_attention" if (layer + 1) % every else "full_attention" for layer in range(layers)]
    if (
        not isinstance(types, list)
        or len(types) != layers
        or not {*map(str, types)} <= {"linear_attention", "full_attention"}
    ):
        raise config.wrong_value("layer_types", f"a list of {layers} of linear_attention and full_attention")
    sparse, dense = (
        config.count_or_none("num_experts") is not None,
        config.assume(mlp_only_layers=None).numbers("mlp_only_layers"),
    )
    step = config.assume(decoder_sparse_step=1).count("decoder_sparse_step")
    routed = [sparse and layer not in dense and (layer + 1) % step == 0 for layer in range(layers)]
    words = [
        ("L" if kind == "linear_attention" else "*") + ("E" if has else "-")
        for kind, has in zip(types, routed, strict=True)
    ]
    try:
        shape = LinearAttention(
            heads=config.count("linear_num_value_heads"),
            key_heads=config.count("linear_num_key_heads"),
            key_dim=config.count("linear_key_head_dim"),
            value_dim=config.count("linear_value_head_dim"),
            conv=config.count("linear_conv_kernel_dim"),
        )
    except ValueError as error:
        what, _, fix = str(error).partition(" | ")
        raise config.key_error("linear_num_value_heads", what, fix) from error
    gate = {"attention_gate": config.flag("attn_output_gate")}
    linear = {"linear_attention": shape} if "linear_attention" in types else {}
    return {**gate, **linear, "pattern": " ".join(words)}


MLLAMA_ADDED_WORDS = 8  # rows that the embedding has for images, and the head has not: a constant in the code


def mllama_layers(config: HfConfig) -> Fields:
    """Llama 3.2 Vision: cross_attention_layers have that in place of attention, norms of its heads, and gates."""
    words, layers = config.numbers("cross_attention_layers"), config.count("num_hidden_layers", MOST_LAYERS)
    if not words or words[-1] >= layers or sorted({*words}) != words:
        raise config.wrong_value("cross_attention_layers", f"a rising list of layers below {layers}")
    pattern = " ".join("X-" if layer in words else "*-" for layer in range(layers))
    own = {"added_words": MLLAMA_ADDED_WORDS, "cross": config.count("hidden_size"), "pattern": pattern}
    return {**own, "cross_norms": True, "cross_gates": True}


def key_in_file(config: HfConfig, key: str) -> str:
    """The name of a key in this file: the current one, or the older one where only that is there."""
    older = OLDER_KEYS[key]
    config.read_keys.add(older)
    return older if older in config.values and key not in config.values else key


def nemotron_activation(config: HfConfig) -> str:
    """The activation of MLPs."""
    word = config.text("mlp_hidden_act")
    if word not in get_args(Activation):
        raise config.wrong_value("mlp_hidden_act", f"one of {', '.join(get_args(Activation))}")
    return word


def nemotron_pattern(config: HfConfig) -> str:
    """A letter for each layer: from a list of words, or, in files before transformers 5, the letters as they are."""
    key = "layers_block_type" if "hybrid_override_pattern" not in config.values else "hybrid_override_pattern"
    kinds: Any = config.value(key)
    if not kinds or not isinstance(kinds, str | list) or not all(isinstance(kind, str) for kind in kinds):
        raise config.wrong_value(key, f"a list of {', '.join(LAYER_LETTERS)}")
    letters: list[str] = (
        [*kinds] if isinstance(kinds, str) else [LAYER_LETTERS.get(str(kind), str(kind)) for kind in kinds]
    )
    unknown = sorted({*letters} - {*LAYER_LETTERS.values()})
    if unknown:
        raise config.key_error(
            key, f"layers of the kind `{unknown[0]}` cannot be expressed", f"one of {', '.join(LAYER_LETTERS)}"
        )
    layers = config.assume(num_hidden_layers=len(letters)).count("num_hidden_layers", MOST_LAYERS)
    if layers != len(letters):
        raise config.key_error(
            "num_hidden_layers", f"{layers} layers, of which {key} names {len(letters)}", "one number"
        )
    config.used_defaults.pop("num_hidden_layers", None)
    return "".join(letters)


def nemotron_space(config: HfConfig) -> StateSpace:
    """The state space of Nemotron-H's Mamba-2 layers."""
    config.expect("mamba_hidden_act", ("silu", "swish"))
    config.expect("mamba_proj_bias", (False,))
    if time_step_limits(config) != (0.0, None):
        config.leave_out_key("time_step_limit")
    fields = {
        "heads": config.count("mamba_num_heads"),
        "head_dim": config.count("mamba_head_dim"),
        "state": config.count("ssm_state_size"),
        "groups": config.count(key_in_file(config, "n_groups")),
        "conv": config.count(key_in_file(config, "conv_kernel")),
        "conv_bias": config.flag(key_in_file(config, "use_conv_bias")),
        "bias": config.flag("use_bias"),
        "chunk": config.count(key_in_file(config, "chunk_size")),
        "step_min": config.number(key_in_file(config, "time_step_min")),
    }
    return build_state_space(config, key_in_file(config, "n_groups"), fields)


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
    fields = {
        "heads": heads,
        "head_dim": width,
        "state": config.count("mamba_d_state"),
        "groups": config.count("mamba_n_groups"),
        "conv": config.count("mamba_d_conv"),
        "conv_bias": config.flag("mamba_conv_bias"),
        "bias": config.flag("mamba_proj_bias"),
        "chunk": config.count("mamba_chunk_size"),
        "step_min": least,
        "step_max": most,
    }
    return build_state_space(config, "mamba_n_groups", fields)


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


def build_state_space(config: HfConfig, key: str, fields: dict[str, Any]) -> StateSpace:
    """A state space of these fields. Raises InputError where the numbers do not fit together."""
    try:
        return StateSpace(**fields)
    except ValueError as error:
        what, _, fix = str(error).partition(" | ")
        raise config.key_error(key, what, fix) from error
