"""A config.json becomes the spec of its model: exact counts, the shipped shapes, and a note for each difference."""

import json

import pytest

from planner import files, hf
from planner.errors import InputError
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.layers import layer_kinds
from planner.specs.layers.head_widths import head_dim
from planner.specs.model import Model
from planner.specs.parameters import model_parameters
from tests.hf import configs
from tests.hf.configs import PUBLISHED


@pytest.fixture
def read(tmp_path):
    def read(config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return hf.read(tmp_path)

    return read


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_totals(read, name):
    config, total = PUBLISHED[name]
    assert read(config).source_parameters == total


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_is_read_is_a_model_file(read, name):
    model = read({**PUBLISHED[name][0], "_name_or_path": f"somebody/{name.partition(',')[0]}"}).model
    assert files.parse(files.dump(model), Model, "again") == model
    assert model.name == name.partition(",")[0].lower()
    assert model.source.startswith(f"config.json of somebody/{name.partition(',')[0]}")


SHIPPED = {  # whose configs here say nothing of bases and eps: specs/test_model_configs.py has all of some
    "llama-3-8b": configs.LLAMA_8B,
    "qwen3-8b": configs.QWEN3_8B,
    "mixtral-8x7b": configs.MIXTRAL,
    "qwen3-30b-a3b": configs.QWEN3_MOE,
    "deepseek-v2-lite": configs.DEEPSEEK_V2_LITE,
    "deepseek-v3": configs.DEEPSEEK_V3,
    "gpt-oss-20b": configs.GPT_OSS,
    "qwen2.5-vl-7b": configs.QWEN2_5_VL_7B,
    "qwen2-audio-7b": configs.QWEN2_AUDIO_7B,
    "nemotron-h-8b": configs.NEMOTRON_H_8B,
    "nemotron-h-56b": configs.NEMOTRON_H_56B,
    "bamba-9b": configs.BAMBA_9B,
}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_is_what_its_config_says(read, name):
    got, shipped = read(SHIPPED[name]).model, library.read_named(name, Model)[0]
    assert got.modules.keys() == shipped.modules.keys() and got.edges == shipped.edges
    for key, module in shipped.modules.items():
        ours = {"norm_eps": module.norm_eps}
        if key == "llm":
            ours |= {"rope_base": module.rope_base, "rope_scaling": module.rope_scaling}
        if key == "vision":  # a preprocessor's settings are in another file
            ours |= {"resize": module.resize, "video": module.video}
        if key == "audio":
            ours |= {"chunk": module.chunk}
        mine = with_fields(got.modules[key], **ours)
        assert with_fields(mine, head_dim=head_dim(mine)) == with_fields(module, head_dim=head_dim(module))


def test_what_routers_and_rotations_are(read):
    llm = read(configs.DEEPSEEK_V3).model.modules["llm"]
    assert (llm.moe.scores, llm.moe.normalised, llm.moe.router_bias) == ("sigmoid", True, True)
    lite = read(configs.DEEPSEEK_V2_LITE).model.modules["llm"]
    assert (lite.moe.scores, lite.moe.normalised, lite.moe.router_bias) == ("softmax", False, False)
    assert (lite.latent.q_rank, lite.norm_eps) == (0, 1e-6)
    llama = read(configs.LLAMA_8B).model.modules["llm"]
    assert (llama.rope_base, llama.norm_eps) == (500000.0, 1e-5)
    newer = {key: value for key, value in configs.LLAMA_8B.items() if not key.startswith("rope")}
    newer["rope_parameters"] = {**configs.LLAMA_8B["rope_scaling"], "rope_theta": 500000.0}
    assert read(newer).model.modules["llm"] == llama
    assert not read(newer).notes


def test_whatever_has_a_meaning_and_is_not_read_is_noted(read):
    def notes(config):
        return [(note.kind, note.what) for note in read(config).notes]

    assert notes(configs.LLAMA_8B) == []
    rich = {**configs.LLAMA_8B, "attention_dropout": 0.1, "new_idea": True, "off": False, "use_cache": True}
    rich["rope_scaling"] = {"rope_type": "dynamic", "factor": 2.0}
    assert notes(rich) == [
        ("left out", 'rope_scaling {"rope_type": "dynamic", "factor": 2.0}'),
        ("left out", "attention_dropout 0.1"),
        ("left out", "new_idea true"),
    ]
    assert ("left out", "num_nextn_predict_layers 1") in notes(configs.DEEPSEEK_V3)
    assert ("left out", "choosing experts from 4 of 8 groups of them by their best score") in notes(
        {**configs.DEEPSEEK_V3, "topk_method": "greedy"}
    )
    assert ("left out", 'hidden_act "gelu"') in notes({**configs.LLAMA_8B, "hidden_act": "gelu"})
    (assumed,) = [what for kind, what in notes(configs.LLAVA_7B) if kind == "assumed" and "text_config" in what]
    assert "text_config.hidden_size 4096" in assumed and "vocab_size" not in assumed
    imported = read(configs.SIGLIP_400M)
    assert sum(note.parameters for note in imported.notes) == 428_225_600 - model_parameters(imported.model)


def layer_types(*full):
    return ["full_attention" if each else "sliding_attention" for each in full]


def test_windows_by_layer(read):
    used = {**configs.QWEN2_HALF, "num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 64}
    for first, want in ((0, [64] * 4), (4, [None] * 4), (9, [None] * 4)):
        module = read({**used, "max_window_layers": first}).model.modules["llm"]
        assert [module.window_of(layer) for layer in range(4)] == want
    module = read({**used, "layer_types": layer_types(0, 1, 0, 1)}).model.modules["llm"]
    assert [module.window_of(layer) for layer in range(4)] == [64, None, 64, None]
    unused = {**used, "use_sliding_window": False, "layer_types": layer_types(0, 1, 0, 1)}
    assert read(unused).model.modules["llm"].window is None


def test_experts_by_layer(read):
    small = {**configs.QWEN3_MOE, "num_hidden_layers": 6}
    kinds = {
        "dense moe moe moe moe moe": {"mlp_only_layers": [0]},
        "dense moe dense moe dense moe": {"decoder_sparse_step": 2},
        "dense dense dense moe dense moe": {"decoder_sparse_step": 2, "mlp_only_layers": [1]},
        "dense dense dense dense dense moe": {"mlp_only_layers": [0, 1, 2, 3, 4]},
        "dense dense dense dense dense dense": {"decoder_sparse_step": 7},
    }
    for kind, said in kinds.items():
        assert " ".join(layer_kinds(read({**small, **said}).model.modules["llm"])) == kind


def test_layers_of_hybrids(read):
    """Older files have a letter for each layer, newer ones a word, and some keys are called otherwise."""
    older = {**HYBRID, "hybrid_override_pattern": "M-*", "time_step_limit": [0.0, float("inf")]}
    newer = {**HYBRID, "layers_block_type": ["linear_attention", "mlp", "full_attention"]}
    newer |= {"time_step_limit": [0.0, {"__float__": "Infinity"}], "head_dim": 128, "mamba_d_conv": 4}
    del newer["attention_head_dim"], newer["hybrid_override_pattern"], newer["conv_kernel"]
    assert read(older).model == read(newer).model
    assert layer_kinds(read(older).model.modules["llm"]) == ("state_space", "mlp", "attention")
    assert not read(newer).notes
    assert layer_kinds(read(configs.BAMBA_9B).model.modules["llm"])[8:10] == ("state_space+mlp", "attention+mlp")
    for large in (1e308, 3.4e38, "Infinity", None):  # how files write that there is no upper limit
        unlimited = read({**configs.BAMBA_9B, "time_step_limit": [0.25, large]}).model.modules["llm"].state_space
        assert (unlimited.step_min, unlimited.step_max) == (0.25, None)
    limited = read({**configs.BAMBA_9B, "time_step_limit": [0.25, 0.5]}).model.modules["llm"].state_space
    assert (limited.step_min, limited.step_max) == (0.25, 0.5)


HYBRID = {key: value for key, value in configs.NEMOTRON_H_8B.items() if key != "num_hidden_layers"}
REFUSED = [
    ({"hidden_size": 64}, "model_type", "missing"),
    ({"model_type": "mamba"}, "model_type", "no reader for models of the kind `mamba`"),
    ({**configs.MISTRAL_7B, "hidden_size": 0}, "hidden_size", "0 is not a whole number"),
    ({**configs.MISTRAL_7B, "hidden_size": True}, "hidden_size", "true is not a whole number"),
    ({**configs.MISTRAL_7B, "hidden_size": 10**10}, "hidden_size", "is not a whole number"),
    ({**configs.MISTRAL_7B, "num_hidden_layers": 10**5}, "num_hidden_layers", "is not a whole number"),
    ({**configs.MISTRAL_7B, "vocab_size": "many"}, "vocab_size", "is not a whole number"),
    ({**configs.MISTRAL_7B, "rms_norm_eps": -1}, "rms_norm_eps", "-1 is not a number"),
    ({**configs.MISTRAL_7B, "rope_theta": 0}, "rope_theta", "0 is not a number"),
    ({**configs.MISTRAL_7B, "tie_word_embeddings": 1}, "tie_word_embeddings", "1 is not true or false"),
    ({**configs.MISTRAL_7B, "num_key_value_heads": 5}, "hidden_size", "not divisible by kv_heads 5"),
    ({**configs.LLAMA_8B, "mlp_bias": True}, "mlp_bias", "biases of the MLP alone"),
    ({**configs.MIXTRAL, "num_experts_per_tok": 9}, "num_experts_per_tok", "topk 9 is more"),
    ({**configs.QWEN3_MOE, "mlp_only_layers": [5]}, "mlp_only_layers", "cannot be expressed"),
    ({**configs.QWEN3_MOE, "mlp_only_layers": "5"}, "mlp_only_layers", "is not a list"),
    (
        {**configs.QWEN2_5_VL_7B, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 20]}},
        "rope_scaling.mrope_section",
        "three numbers that add up to 64",
    ),
    (
        {**configs.QWEN2_5_VL_7B, "rope_scaling": {"type": "mrope", "mrope_section": "all"}},
        "rope_scaling.mrope_section",
        "is not a list of whole numbers",
    ),
    (
        {**configs.QWEN2_5_VL_7B, "vision_config": {**configs.QWEN2_5_VL_7B["vision_config"], "window_size": 98}},
        "vision_config.window_size",
        "a multiple of patch_size",
    ),
    (
        {**configs.DEEPSEEK_V3, "moe_layer_freq": 2, "first_k_dense_replace": 0},
        "first_k_dense_replace",
        "cannot be expressed",
    ),
    ({**configs.DEEPSEEK_V3, "scoring_func": "tanh"}, "scoring_func", "is not softmax or sigmoid"),
    ({**configs.GPT_OSS, "layer_types": layer_types(1, *[0] * 23)}, "layer_types", "cannot be expressed"),
    ({**configs.GPT_OSS, "layer_types": ["full_attention"]}, "layer_types", "a list of 24 layers"),
    ({**configs.GPT_OSS, "layer_types": ["linear"] * 24}, "layer_types", "is not a list of"),
    (
        {**configs.QWEN2_7B, "use_sliding_window": True, "max_window_layers": 9},
        "max_window_layers",
        "cannot be expressed",
    ),
    (
        {**configs.LLAVA_7B, "text_config": {"model_type": "bloom"}},
        "text_config.model_type",
        "a bloom is not read here",
    ),
    (
        {**configs.NEMOTRON_H_8B, "moe_latent_size": 64, "hybrid_override_pattern": "M*E"},
        "num_hidden_layers",
        "names 3",
    ),
    ({**configs.GPT_OSS, "attention_bias": False}, "attention_bias", "cannot be expressed"),
    ({**HYBRID, "hybrid_override_pattern": "MX"}, "hybrid_override_pattern", "of the kind `X`"),
    ({**HYBRID, "mlp_bias": True}, "mlp_bias", "cannot be expressed"),
    ({**HYBRID, "mlp_hidden_act": "tanh"}, "mlp_hidden_act", "is not silu or"),
    ({**HYBRID, "mamba_n_groups": 5, "n_groups": 7}, "n_groups", "not divisible by groups 7"),
    ({**configs.BAMBA_9B, "mamba_d_head": 65}, "mamba_d_head", "128 heads of 65"),
    ({**configs.BAMBA_9B, "time_step_limit": [0.1]}, "time_step_limit", "a list of two numbers"),
    ({**configs.BAMBA_9B, "model_type": "zamba2"}, "model_type", "no reader for models of the kind `zamba2`"),
    ({**configs.LLAVA_7B, "vision_config": 3}, "vision_config", "3 is not a mapping"),
    ({**configs.CLIP_L, "num_attention_heads": 7}, "num_attention_heads", "divides hidden_size"),
    ({**configs.QWEN2_VL_2B, "hidden_size": 3072}, "vision_config.hidden_size", "1536 is not the decoder's width"),
    (
        {**configs.QWEN2_5_VL_7B, "vision_config": {**configs.QWEN2_5_VL_7B["vision_config"], "window_size": 100}},
        "vision_config.window_size",
        "is not a multiple of patch_size",
    ),
]


@pytest.mark.parametrize(("config", "key", "message"), REFUSED, ids=[f"{key}: {what}" for _, key, what in REFUSED])
def test_what_no_spec_can_express_is_refused_by_its_key(read, tmp_path, config, key, message):
    with pytest.raises(InputError) as refused:
        read(config)
    assert message in refused.value.message
    assert refused.value.where == f"{tmp_path / 'config.json'} ({key})" and refused.value.fix


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("", ":1:1", "not JSON"),
        ('{"a": 1,\n "b": }', ":2:7", "not JSON"),
        ("[1]", "", "not a mapping"),
        ('{"a": 1, "a": 2}', " (a)", "occurs twice"),
        ("[" * 100_000, "", "too deeply"),
        ('{"a": ' + "9" * 10_000 + "}", "", "too long"),
    ],
)
def test_what_is_no_config(tmp_path, text, where, message):
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        hf.read(path)
    assert message in refused.value.message and refused.value.where == f"{path}{where}" and refused.value.fix


def test_a_folder_without_one(tmp_path):
    with pytest.raises(InputError, match="cannot read") as refused:
        hf.read(tmp_path)
    assert refused.value.where == str(tmp_path / "config.json")
