"""Parameter counts against those of transformers' own modules, built from the configs that are written."""

import warnings

import pytest
import torch

from planner import hf

SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip
LATENT = {"kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 10}
SPARSE = {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 1}
QWEN_SPARSE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
TEXTS = {
    "llama": {**SMALL, "attention_bias": True, "mlp_bias": True},
    "mistral": {**SMALL, "head_dim": 32},
    "qwen2": {**SMALL, "tie_word_embeddings": True},
    "qwen3": SMALL,
    "mixtral": {**SMALL, "num_local_experts": 4},
    "qwen2_moe": {**SMALL, **QWEN_SPARSE, "shared_expert_intermediate_size": 40, "mlp_only_layers": [0]},
    "qwen3_moe": {**SMALL, **QWEN_SPARSE, "head_dim": 32, "decoder_sparse_step": 2},
    "deepseek_v2": {**SMALL, **LATENT, **SPARSE, "q_lora_rank": None, "num_key_value_heads": 4},
    "deepseek_v3": {**SMALL, **LATENT, **SPARSE, "q_lora_rank": 20, "n_group": 2, "topk_group": 1},
    "gpt_oss": {**SMALL, "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {},
    "bamba": {**SMALL, "attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_n_groups": 2, "mamba_d_state": 12},
    "nemotron_h": {
        **{key: value for key, value in SMALL.items() if key != "num_hidden_layers"},
        "hybrid_override_pattern": "M-*ME", "head_dim": 16, "mamba_num_heads": 8, "mamba_head_dim": 12, "n_groups": 2,
        "ssm_state_size": 20, "conv_kernel": 3, "use_bias": True, "n_routed_experts": 6, "moe_intermediate_size": 24,
        "moe_shared_expert_intermediate_size": 40,
    },
}  # fmt: skip
OTHERS = {
    "bert": "BertModel",
    "t5": "T5ForConditionalGeneration",
    "clip_vision_model": "CLIPVisionModel",
    "siglip_vision_model": "SiglipVisionModel",
    "whisper": "WhisperForConditionalGeneration",
    "llava": "LlavaForConditionalGeneration",
    "qwen2_audio": "Qwen2AudioForConditionalGeneration",
    "mllama": "MllamaForConditionalGeneration",
}


@pytest.fixture(scope="module")
def transformers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    return transformers


def count(model):
    """Parameters, and the biases of choosing experts, which are buffers."""
    moved = sum(buffer.numel() for name, buffer in model.named_buffers() if "e_score_correction" in name)
    return sum(parameter.numel() for parameter in model.parameters()) + moved


@pytest.mark.parametrize("kind", [*TEXTS, *OTHERS])
@pytest.mark.parametrize("brief", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_as_many_parameters(transformers, tmp_path, kind, brief):
    config = transformers.CONFIG_MAPPING[kind](**TEXTS.get(kind, {}))
    with torch.device("meta"):
        if kind in TEXTS:
            model = transformers.AutoModelForCausalLM.from_config(config)
        else:
            model = getattr(transformers, OTHERS[kind])._from_config(config)
    config.to_json_file(tmp_path / "config.json", use_diff=brief)
    assert hf.read(tmp_path).source_parameters == count(model)
