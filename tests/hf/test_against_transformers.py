"""Parameter counts against those of transformers' own modules, built from the configs that are written."""

import warnings
from functools import cache

import pytest
import torch

from planner import hf
from planner.models import describe
from planner.specs.parameters import parameter_counts
from tests.hf.meta_models import forward_flops, spec_flops

SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip
LATENT = {"num_key_value_heads": 4, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 10}
SPARSE = {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 1}
QWEN_SPARSE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
INDEX = {"index_n_heads": 3, "index_head_dim": 16}
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
}  # fmt: skip
TEXTS = {
    "llama": {**SMALL, "attention_bias": True, "mlp_bias": True},
    "mistral": {**SMALL, "head_dim": 32},
    "qwen2": {**SMALL, "tie_word_embeddings": True},
    "qwen3": SMALL,
    "mixtral": {**SMALL, "num_local_experts": 4},
    "qwen2_moe": {**SMALL, **QWEN_SPARSE, "shared_expert_intermediate_size": 40, "mlp_only_layers": [0]},
    "qwen3_moe": {**SMALL, **QWEN_SPARSE, "head_dim": 32, "decoder_sparse_step": 2},
    "deepseek_v2": {**SMALL, **LATENT, **SPARSE, "q_lora_rank": None},
    "deepseek_v3": {**SMALL, **LATENT, **SPARSE, "q_lora_rank": 20, "n_group": 2, "topk_group": 1},
    "gpt_oss": {**SMALL, "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {},
    "phi3": {**SMALL, "partial_rotary_factor": 0.5, "pad_token_id": 0},
    "olmo2": {**SMALL, "attention_bias": True},
    "olmo3": SMALL,
    "olmoe": {**SMALL, **QWEN_SPARSE},
    "exaone4": SMALL,
    "smollm3": {**SMALL, "pad_token_id": 0},
    "seed_oss": {**SMALL, "head_dim": 16},
    "ernie4_5": {**SMALL, "use_bias": True},
    "hunyuan_v1_dense": {**SMALL, "head_dim": 16},
    "granite": SMALL,
    "ministral": {**SMALL, "head_dim": 16},
    "starcoder2": SMALL,
    "gemma": {**SMALL, "head_dim": 32},
    "gemma2": {**SMALL, "head_dim": 32},
    "gemma3_text": {**SMALL, "head_dim": 32},
    "glm4": {**SMALL, "head_dim": 16, "pad_token_id": 0},
    "glm4_moe": {**SMALL, **SPARSE, "head_dim": 16, "attention_bias": True, "use_qk_norm": True},
    "minimax_m2": {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 32},
    "deepseek_v32": {**SMALL, **LATENT, **SPARSE, **INDEX, "q_lora_rank": 20, "n_group": 2, "topk_group": 1},
    "glm_moe_dsa": {**SMALL, **LATENT, **SPARSE, **INDEX, "q_lora_rank": 20, "pad_token_id": 0},
    "llama4_text": {
        **SMALL, "num_local_experts": 4, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 80, "head_dim": 16,
        "pad_token_id": 0,
    },
    "qwen3_next": {**SMALL, **QWEN_SPARSE, **LINEAR, "shared_expert_intermediate_size": 20},
    "qwen3_5_text": {**SMALL, **LINEAR},
    "qwen3_5_moe_text": {**SMALL, **QWEN_SPARSE, **LINEAR, "shared_expert_intermediate_size": 20},
    "bamba": {**SMALL, "attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_n_groups": 2, "mamba_d_state": 12},
    "nemotron_h": {
        **{key: value for key, value in SMALL.items() if key != "num_hidden_layers"},
        "hybrid_override_pattern": "M-*ME", "head_dim": 16, "mamba_num_heads": 8, "mamba_head_dim": 12, "n_groups": 2,
        "ssm_state_size": 20, "conv_kernel": 3, "use_bias": True, "n_routed_experts": 6, "moe_intermediate_size": 24,
        "moe_shared_expert_intermediate_size": 40,
    },
}  # fmt: skip
TOWER = {"out_hidden_size": 64, "depth": 3, "deepstack_visual_indexes": [1]}
PARTS = {"qwen3_vl": {"text_config": SMALL, "vision_config": TOWER}}
OTHERS = {
    "bert": "BertModel",
    "t5": "T5ForConditionalGeneration",
    "clip_vision_model": "CLIPVisionModel",
    "siglip_vision_model": "SiglipVisionModel",
    "whisper": "WhisperForConditionalGeneration",
    "llava": "LlavaForConditionalGeneration",
    "qwen2_audio": "Qwen2AudioForConditionalGeneration",
    "mllama": "MllamaForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "kimi_k25": "Kimi_K25ForConditionalGeneration",
    "llama4": "Llama4ForConditionalGeneration",
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


@pytest.fixture(scope="module")
def built(transformers):
    """The network of a kind on the meta device, and its config."""

    @cache
    def build(kind):
        config = transformers.CONFIG_MAPPING[kind](**(TEXTS | PARTS).get(kind, {}))
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind in TEXTS:
                return transformers.AutoModelForCausalLM.from_config(config), config
            return getattr(transformers, OTHERS[kind])._from_config(config), config

    return build


@pytest.mark.parametrize("kind", [*TEXTS, *OTHERS])
@pytest.mark.parametrize("brief", [False, True])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.every(2)
def test_as_many_parameters(built, tmp_path, kind, brief):
    model, config = built(kind)
    config.to_json_file(tmp_path / "config.json", use_diff=brief)
    assert hf.read(tmp_path).source_parameters == count(model)


# What a token is not sent to is computed all the same (Llama 4), or scans are, in chunks longer than this text.
MORE = {"llama4_text", "bamba", "nemotron_h", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}


FEW = ("llama", "gpt_oss", "deepseek_v3", "olmo2")  # the others are slow


def flop_cases():
    for kind in TEXTS.keys() - MORE:
        yield pytest.param(kind, marks=() if kind in FEW else (pytest.mark.slow,))


@pytest.mark.parametrize("kind", sorted(flop_cases(), key=str))
@pytest.mark.filterwarnings("ignore")
@pytest.mark.every(3)
def test_forward_flops_of_readers_and_of_what_is_built(built, transformers, tmp_path, kind):
    """Within 1 % of torch's counter once widths are those of small models: of norms and biases a spec counts products
    of one number each.
    """
    _, config = built(kind)
    for key, scale in {"hidden_size": 8, "intermediate_size": 8, "moe_intermediate_size": 16}.items():
        if isinstance(getattr(config, key, None), int):
            setattr(config, key, scale * getattr(config, key))
    if hasattr(config, "qk_rope_head_dim"):
        config.head_dim = config.qk_rope_head_dim = 16  # one of them rotates, and one is rotated
        config.rope_parameters.pop("partial_rotary_factor", None)
    config.to_json_file(tmp_path / "config.json", use_diff=False)
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(config)
    measured = forward_flops(network, config)
    described = describe(hf.read_config(tmp_path / "config.json"))
    assert spec_flops(hf.read(tmp_path).model.modules["llm"]) == pytest.approx(measured, rel=0.01)
    assert spec_flops(described.module) == pytest.approx(measured, rel=0.01 if "index" not in str(config) else 0.03)
    assert parameter_counts(described.module).total == sum(each.numel() for each in network.parameters())
