"""Families of decoders by their `model_type`: each a row of blocks, read one after the other."""

from functools import partial
from typing import Any

from planner.hf.decoders import (
    EARLY_EVEN,
    EVEN,
    EVERY,
    LATER,
    SHAPE_4096,
    Family,
    activated_mlp,
    bias_by,
    counts,
    each_layer,
    family,
    fixed,
    flags,
    gated_mlp,
    gpt2,
    grouped_attention,
    llama_bias,
    numbers,
    plain_window,
    qk_norm_by,
    rotary,
    rotary_width,
    stack,
    whole_qk_norm,
    windows,
)
from planner.hf.hybrid_decoders import (
    BAMBA_DEFAULTS,
    BAMBA_ROTARY_SHARE,
    NEMOTRON_DEFAULTS,
    NEMOTRON_ONLY,
    UNUSED_KEYS,
    bamba_layers,
    delta_layers,
    mllama_layers,
    nemotron_layers,
)
from planner.hf.moe_decoders import (
    ExpertKeys,
    dense_first,
    experts,
    indexer,
    latent_attention,
    llama4_layers,
    qwen_layers,
)

ATTENTION_BIAS = bias_by("attention_bias")
QKV_BIAS = bias_by("attention_bias", "qkv")
LLAMA = (stack(), grouped_attention, gated_mlp(), rotary())
PARTIAL = (stack(), grouped_attention, gated_mlp(), rotary(read_share=True))
GEMMA = (stack(tied=True), grouped_attention, rotary(), ATTENTION_BIAS)
GEMMA_MLP = activated_mlp("hidden_activation", True)
OLMO_NORMS = fixed(qk_norm="whole", norms="behind")
GEMMA_SCALE = ("the embedding's output by sqrt(hidden_size)",)
QWEN3 = (*LLAMA, ATTENTION_BIAS, fixed(qk_norm=True))
QWEN_EXPERTS = ExpertKeys(sparse=qwen_layers, normalised="norm_topk_prob")
DEEPSEEK_EXPERTS = ExpertKeys(
    "n_routed_experts", sparse=dense_first(), shared="n_shared_experts", scores="scoring_func", bias="topk_method",
    normalised="norm_topk_prob", scale="routed_scaling_factor", groups=("n_group", "topk_group"),
)  # fmt: skip
DEEPSEEK = (stack(), gated_mlp(), rotary(), latent_attention, ATTENTION_BIAS, experts(DEEPSEEK_EXPERTS))
V3_ROUTER: dict[str, Any] = {
    "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": True, "routed_scaling_factor": 2.5,
    "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3, "n_shared_experts": 1, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "q_lora_rank": 1536,
}  # fmt: skip
GLM_DSA = {"rms_norm_eps": 1e-5, "index_n_heads": 32, "n_group": 1, "topk_group": 1, "q_lora_rank": 2048}
NEXT: dict[str, Any] = {
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "full_attention_interval": 4, "layer_types": None, "head_dim": 256,
    "num_key_value_heads": 2, "attn_output_gate": True,
}  # fmt: skip
LLAMA4_EXPERTS = ExpertKeys(
    "num_local_experts", width="intermediate_size", sparse=llama4_layers, shared="intermediate_size", scores="sigmoid",
    normalised=False,
)  # fmt: skip
NEXT_EXPERTS = ExpertKeys(shared="shared_expert_intermediate_size", shared_gate=True)
NEXT_ATTENTION = (grouped_attention, rotary(share=0.25, read_share=True), ATTENTION_BIAS, fixed(qk_norm=True))
NEXT_UNUSED = {"mamba_ssm_dtype", "mtp_use_dedicated_embeddings", "mlp_only_layers", "decoder_sparse_step"}
SCALES = ("embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier")

DECODERS: dict[str, Family] = {  # by `model_type`
    # Llama (arXiv 2302.13971) and what differs from it in little: Mistral (2310.06825), Qwen2 (2407.10671), Qwen3
    # (2505.09388), MiMo (2505.07608), Phi-3 and Phi-4 (2412.08905), SmolLM3, Seed-OSS, ERNIE 4.5, Hunyuan, Granite.
    "llama": family(
        *LLAMA, llama_bias, within=SHAPE_4096 | {"vocab_size": 32000, "intermediate_size": 11008},
        num_key_value_heads=None),
    "mistral": family(
        *LLAMA, plain_window, within=SHAPE_4096 | {"vocab_size": 32000, "intermediate_size": 14336},
        num_key_value_heads=8, sliding_window=4096),
    "ministral": family(*LLAMA, windows(EVEN, ""), num_key_value_heads=8, sliding_window=4096),
    "qwen2": family(
        *LLAMA, fixed(bias="qkv"), windows(LATER),
        within=SHAPE_4096 | {"vocab_size": 151936, "intermediate_size": 22016},
        num_key_value_heads=32, sliding_window=4096),
    "qwen3": family(
        *QWEN3, windows(LATER), within=SHAPE_4096 | {"vocab_size": 151936, "intermediate_size": 22016},
        num_key_value_heads=32, head_dim=128, sliding_window=4096),
    "mimo": family(*LLAMA, QKV_BIAS, windows(LATER), only={"use_mrope": (False,)}, sliding_window=4096),
    "phi3": family(
        *PARTIAL, plain_window, unused={"original_max_position_embeddings", "attention_bias"},
        num_key_value_heads=None, rms_norm_eps=1e-5),
    "smollm3": family(
        *LLAMA, llama_bias, windows(LATER), num_key_value_heads=4, rope_theta=2e6, sliding_window=None,
        tie_word_embeddings=True),
    "seed_oss": family(
        *LLAMA, bias_by("attention_bias", "qkv", True), only={"attention_out_bias": (False,), "mlp_bias": (False,)},
        num_key_value_heads=8, head_dim=128),
    "ernie4_5": family(
        *LLAMA, bias_by("use_bias", "all"), num_key_value_heads=2, head_dim=128, rope_theta=500000.0,
        rms_norm_eps=1e-5, tie_word_embeddings=True),
    "hunyuan_v1_dense": family(*QWEN3, num_key_value_heads=None, rms_norm_eps=1e-5),
    "granite": family(*LLAMA, llama_bias, only={key: (1.0, 1) for key in SCALES}, num_key_value_heads=None),
    # Norms behind blocks, or before and behind: OLMo 2 (2501.00656) and 3, EXAONE 4, GLM-4, Gemma 2 (2408.00118) and
    # 3 (2503.19786); Gemma (2403.08295) with its MLP.
    "olmo2": family(*LLAMA, ATTENTION_BIAS, OLMO_NORMS, num_key_value_heads=None, rms_norm_eps=1e-5),
    "olmo3": family(
        *LLAMA, ATTENTION_BIAS, OLMO_NORMS, windows(each_layer("sliding_window_pattern", 4), ""),
        num_key_value_heads=None, rms_norm_eps=1e-5, rope_theta=500000.0, sliding_window=4096),
    "exaone4": family(
        *LLAMA, fixed(qk_norm=True, norms="behind"), windows(each_layer("sliding_window_pattern", 4), ""),
        num_key_value_heads=32, rms_norm_eps=1e-5, sliding_window=4096),
    "glm4": family(
        *PARTIAL, QKV_BIAS, fixed(norms="both"), partial_rotary_factor=0.5, attention_bias=True, head_dim=128,
        num_key_value_heads=2, rms_norm_eps=1.5625e-07),
    "gemma": family(
        *GEMMA, activated_mlp("hidden_act", True), added=GEMMA_SCALE, unused={"hidden_activation"},
        head_dim=256, num_key_value_heads=16, hidden_act="gelu_pytorch_tanh"),
    "gemma2": family(
        *GEMMA, GEMMA_MLP, fixed(norms="both"), windows(EVEN, ""), added=GEMMA_SCALE, unused={"hidden_act"},
        head_dim=256, num_key_value_heads=4, hidden_activation="gelu_pytorch_tanh", sliding_window=4096),
    "gemma3_text": family(
        *GEMMA, GEMMA_MLP, fixed(norms="both", qk_norm=True), windows(each_layer("sliding_window_pattern", 6), ""),
        added=GEMMA_SCALE, head_dim=256, num_key_value_heads=4, hidden_activation="gelu_pytorch_tanh",
        sliding_window=4096, rope_theta=1e6),
    # GPT-2, and StarCoder2 (2402.19173).
    "gpt2": family(
        stack("n_layer", "n_embd", "layer_norm_epsilon", tied=True), gpt2,
        only={"activation_function": ("gelu",), "scale_attn_weights": (True,)},
        layer_norm_epsilon=1e-5, activation_function="gelu_new"),
    "starcoder2": family(
        stack(eps="norm_epsilon", tied=True), grouped_attention, rotary(), activated_mlp("hidden_act", False),
        bias_by("use_bias", "all", True), fixed(norm="layer"), plain_window,
        num_key_value_heads=2, norm_epsilon=1e-5, hidden_act="gelu_pytorch_tanh"),
    # Experts: Mixtral (2401.04088), OLMoE (2409.02060), Qwen2-MoE, Qwen3-MoE (2505.09388), gpt-oss (2508.10925),
    # GLM-4.5 (2508.06471), MiniMax-M2, Llama 4.
    "mixtral": family(
        *LLAMA, plain_window, experts(ExpertKeys("num_local_experts", width="intermediate_size")),
        rms_norm_eps=1e-5, rope_theta=1e6, num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2),
    "olmoe": family(
        *LLAMA, ATTENTION_BIAS, fixed(qk_norm="whole"),
        experts(ExpertKeys(width="intermediate_size", normalised="norm_topk_prob")),
        num_key_value_heads=None, rms_norm_eps=1e-5, norm_topk_prob=False, num_experts=64, num_experts_per_tok=8),
    "qwen2_moe": family(
        *LLAMA, bias_by("qkv_bias", "qkv", True), windows(EARLY_EVEN),
        experts(QWEN_EXPERTS._replace(shared="shared_expert_intermediate_size", shared_gate=True)),
        num_key_value_heads=16, sliding_window=4096, norm_topk_prob=False, num_experts=60, num_experts_per_tok=4,
        moe_intermediate_size=1408, shared_expert_intermediate_size=5632),
    "qwen3_moe": family(
        *QWEN3, windows(EVERY), experts(QWEN_EXPERTS), num_key_value_heads=4, sliding_window=4096,
        norm_topk_prob=False, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768),
    "gpt_oss": family(
        *LLAMA, fixed(bias="all", sinks=True), windows(EVEN, ""),
        experts(ExpertKeys("num_local_experts", width="intermediate_size", bias=True)),
        only={"attention_bias": (True,)}, unused={"experts_per_token", "initial_context_length"},
        rope_theta=150000.0, rms_norm_eps=1e-5, sliding_window=128, num_key_value_heads=8, head_dim=64,
        num_local_experts=128, num_experts_per_tok=4),
    "glm4_moe": family(
        *PARTIAL, QKV_BIAS, qk_norm_by("use_qk_norm", False), experts(DEEPSEEK_EXPERTS),
        scoring_func="sigmoid", topk_method="noaux_tc", norm_topk_prob=True, first_k_dense_replace=1,
        n_shared_experts=1, n_group=1, rms_norm_eps=1e-5, partial_rotary_factor=0.5, num_key_value_heads=8,
        n_routed_experts=128, num_experts_per_tok=8, moe_intermediate_size=1408),
    "minimax_m2": family(
        *LLAMA, rotary_width, whole_qk_norm,
        experts(ExpertKeys("num_local_experts", width="intermediate_size", scores="scoring_func", bias=True)),
        only={"use_routing_bias": (True,)}, rope_theta=5e6, head_dim=128, num_key_value_heads=8,
        scoring_func="sigmoid", num_local_experts=256, num_experts_per_tok=8),
    "llama4_text": family(
        stack(), grouped_attention, gated_mlp("intermediate_size_mlp"), rotary(500000.0), ATTENTION_BIAS,
        windows(each_layer("no_rope_layer_interval", 4), "", "attention_chunk_size"), experts(LLAMA4_EXPERTS),
        added=("a division of each head's query and key by its root mean square", "layers without positions"),
        unused={"no_rope_layers", "use_qk_norm", "for_llm_compressor", "attn_temperature_tuning"},
        rms_norm_eps=1e-5, attention_chunk_size=8192, num_key_value_heads=8, head_dim=128,
        intermediate_size_mlp=16384, num_local_experts=16, num_experts_per_tok=1),
    # Latent attention: DeepSeek-V2 (2405.04434), V3 (2412.19437), Kimi-K2 (2507.20534); and with an indexer V3.2
    # (2512.02556), GLM-5.
    "deepseek_v2": family(
        *DEEPSEEK, only={"mlp_bias": (False,)},
        scoring_func="softmax", topk_method="greedy", norm_topk_prob=False, n_group=None,
        n_shared_experts=2, first_k_dense_replace=0, n_routed_experts=64, moe_intermediate_size=1407, q_lora_rank=1536),
    "deepseek_v3": family(*DEEPSEEK, **V3_ROUTER),
    "kimi_k2": family(*DEEPSEEK, **V3_ROUTER),
    "deepseek_v32": family(*DEEPSEEK, indexer, **V3_ROUTER),
    "glm_moe_dsa": family(*DEEPSEEK, indexer, **V3_ROUTER | GLM_DSA),
    # Linear attention: Qwen3-Next, Qwen3.5 (2412.06464).
    "qwen3_next": family(
        stack(), *NEXT_ATTENTION, gated_mlp(), delta_layers,
        experts(NEXT_EXPERTS._replace(normalised="norm_topk_prob")),
        unused=NEXT_UNUSED, norm_topk_prob=True, num_experts=512, num_experts_per_tok=10,
        moe_intermediate_size=512, shared_expert_intermediate_size=512, **NEXT),
    "qwen3_5_text": family(
        stack(), *NEXT_ATTENTION, gated_mlp(), partial(delta_layers, routes=False), unused=NEXT_UNUSED,
        **NEXT | {"num_key_value_heads": 4}),
    "qwen3_5_moe_text": family(
        stack(), *NEXT_ATTENTION, delta_layers, gated_mlp("moe_intermediate_size"), experts(NEXT_EXPERTS),
        unused=NEXT_UNUSED, num_experts=256, num_experts_per_tok=8, moe_intermediate_size=512,
        shared_expert_intermediate_size=512, **NEXT),
    # State spaces: Bamba, Nemotron-H (2504.03624, 2512.20856).
    "bamba": family(*LLAMA[:3], rotary(share=BAMBA_ROTARY_SHARE), llama_bias, bamba_layers, **BAMBA_DEFAULTS),
    "nemotron_h": family(
        counts(hidden="hidden_size", ffn="intermediate_size", vocab="vocab_size"), grouped_attention,
        flags(tied="tie_word_embeddings"), numbers(norm_eps="layer_norm_epsilon"), nemotron_layers,
        only=NEMOTRON_ONLY, unused=UNUSED_KEYS, tie_word_embeddings=False, **NEMOTRON_DEFAULTS),
    # Decoders of multimodal models alone: Llama 3.2 Vision (2407.21783, section 7), Qwen3-VL (2511.21631).
    "mllama_text_model": family(
        *LLAMA, mllama_layers, num_key_value_heads=8, rms_norm_eps=1e-5, rope_theta=500000.0, vocab_size=128256,
        hidden_size=4096, num_hidden_layers=40, num_attention_heads=32, intermediate_size=14336,
        cross_attention_layers=[3, 8, 13, 18, 23, 28, 33, 38]),
    "qwen3_vl_text": family(*QWEN3, num_key_value_heads=32, head_dim=128, rope_theta=500000.0),
    "qwen3_vl_moe_text": family(
        *QWEN3, experts(QWEN_EXPERTS), num_key_value_heads=16, head_dim=128, rope_theta=500000.0, norm_topk_prob=True,
        num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408),
}  # fmt: skip
