"""Shapes of published models as their config.json has them: only the keys that matter, and published parameter
counts.
"""

from typing import Any

LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "attention_dropout": 0.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}  # fmt: skip
MISTRAL_7B = {
    "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": 4096,
}  # fmt: skip
QWEN2_7B = {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "use_sliding_window": False,
    "sliding_window": 131072, "max_window_layers": 28, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6,
}  # fmt: skip
QWEN2_HALF = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
QWEN3_8B = {
    "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
}  # fmt: skip
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8,
    "num_experts_per_tok": 2, "sliding_window": None, "rope_theta": 1000000.0,
}  # fmt: skip
QWEN2_MOE = {  # Qwen1.5-MoE-A2.7B
    "model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24,
    "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 151936, "decoder_sparse_step": 1,
    "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60,
    "num_experts_per_tok": 4, "norm_topk_prob": False,
}  # fmt: skip
QWEN3_MOE = {  # Qwen3-30B-A3B
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "norm_topk_prob": True,
}  # fmt: skip
DEEPSEEK_V2_LITE = {
    "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 27,
    "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 102400, "q_lora_rank": None,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_routed_experts": 64, "n_shared_experts": 2,
    "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "scoring_func": "softmax", "topk_method": "greedy",
    "norm_topk_prob": False, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
    "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "norm_topk_prob": True, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1,
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088,
    "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "attention_bias": True,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}  # fmt: skip
NEMOTRON_H = {
    "model_type": "nemotron_h", "attention_bias": False, "attention_head_dim": 128, "chunk_size": 128, "conv_kernel": 4,
    "expand": 2, "mamba_head_dim": 64, "mamba_hidden_act": "silu", "mamba_proj_bias": False, "mlp_bias": False,
    "mlp_hidden_act": "relu2", "n_groups": 8, "num_key_value_heads": 8, "layer_norm_epsilon": 1e-5,
    "rms_norm_eps": 1e-5, "time_step_floor": 0.0001, "time_step_limit": [0.0, float("inf")], "time_step_max": 0.1,
    "time_step_min": 0.001, "use_bias": False, "use_conv_bias": True, "vocab_size": 131072,
}  # fmt: skip
NEMOTRON_H_8B = {
    **NEMOTRON_H, "hidden_size": 4096, "intermediate_size": 21504, "num_hidden_layers": 52, "num_attention_heads": 32,
    "mamba_num_heads": 128, "ssm_state_size": 128,
    "hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 3 + "M-M-M-M-M-",
}  # fmt: skip
NEMOTRON_H_56B = {
    **NEMOTRON_H, "hidden_size": 8192, "intermediate_size": 32768, "num_hidden_layers": 118, "num_attention_heads": 64,
    "mamba_num_heads": 256, "ssm_state_size": 256, "time_step_rank": 512,
    "hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-",
}  # fmt: skip
BAMBA_9B = {
    "model_type": "bamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "attn_layer_indices": [9, 18, 27],
    "attn_rotary_emb": 64, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_proj_bias": False,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
CLIP_L = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 336, "patch_size": 14,
}  # fmt: skip
SIGLIP_400M = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "image_size": 384, "patch_size": 14,
}  # fmt: skip
WHISPER = {  # large-v3
    "model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120, "decoder_layers": 32, "decoder_attention_heads": 20, "decoder_ffn_dim": 5120,
    "num_mel_bins": 128, "max_source_positions": 1500, "max_target_positions": 448, "vocab_size": 51866,
}  # fmt: skip
QWEN2_VL_2B = {
    "model_type": "qwen2_vl", "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
    "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
    "vision_config": {
        "depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "in_chans": 3, "hidden_size": 1536,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    },
}  # fmt: skip
QWEN2_5_VL_7B = {
    **QWEN2_7B,
    "model_type": "qwen2_5_vl", "sliding_window": 32768,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {
        "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "in_chans": 3,
        "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
        "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
    },
}  # fmt: skip
LLAVA_7B = {  # its text says only how it differs from Llama's usual shape
    "model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064, "rms_norm_eps": 1e-5},
    "vision_config": {**CLIP_L, "projection_dim": 768, "vocab_size": 32000}, "vision_feature_layer": -2,
}  # fmt: skip
QWEN2_AUDIO_7B = {
    "model_type": "qwen2_audio",
    "text_config": {"model_type": "qwen2", "vocab_size": 156032, "intermediate_size": 11008},
    "audio_config": {"d_model": 1280, "num_mel_bins": 128, "encoder_layers": 32},
}  # fmt: skip

# As the model's page counts; of towers without a page of their own, as transformers does.
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "Llama-3.1-8B": (LLAMA_8B, 8_030_261_248),
    "Mistral-7B-v0.1": (MISTRAL_7B, 7_241_732_096),
    "Qwen2.5-7B": (QWEN2_7B, 7_615_616_512),
    "Qwen2.5-0.5B": (QWEN2_HALF, 494_032_768),
    "Qwen3-8B": (QWEN3_8B, 8_190_735_360),
    "Mixtral-8x7B": (MIXTRAL, 46_702_792_704),
    "Qwen1.5-MoE-A2.7B": (QWEN2_MOE, 14_315_784_192),
    "Qwen3-30B-A3B": (QWEN3_MOE, 30_532_122_624),
    "DeepSeek-V2-Lite": (DEEPSEEK_V2_LITE, 15_706_484_224),
    "DeepSeek-V3": (DEEPSEEK_V3, 671_026_419_200),  # without its multi-token prediction
    "gpt-oss-20b": (GPT_OSS, 20_914_757_184),
    "Nemotron-H-8B-Base-8K": (NEMOTRON_H_8B, 8_100_852_736),
    "Nemotron-H-56B-Base-8K": (NEMOTRON_H_56B, 56_324_350_464),  # its page says 56 B
    "Bamba-9B": (BAMBA_9B, 9_780_235_392),  # 9.78 B
    "gpt2": (GPT2, 124_439_808),
    "clip-vit-large-patch14-336, vision": (CLIP_L, 303_507_456),
    "siglip-so400m-patch14-384, vision": (SIGLIP_400M, 428_225_600),
    "whisper-large-v3": (WHISPER, 1_543_490_560),
    "Qwen2-VL-2B": (QWEN2_VL_2B, 2_208_985_600),
    "Qwen2.5-VL-7B": (QWEN2_5_VL_7B, 8_292_166_656),
    "llava-1.5-7b": (LLAVA_7B, 7_063_427_072),
    "Qwen2-Audio-7B": (QWEN2_AUDIO_7B, 8_397_094_912),
}
