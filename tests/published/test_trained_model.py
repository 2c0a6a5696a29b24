"""A record's model, by its columns or by its name; what is not described is refused by name."""

import pytest

from planner.published.model_names import spec_name, undescribed_layers
from planner.published.record_files import UnusableRecord
from planner.published.trained_model import model_of_record, shipped_module
from planner.specs import library
from planner.specs.layers.components import Experts
from planner.specs.model import Model
from planner.specs.parameters import parameter_counts
from tests.published.made_records import record

SHIPPED = library.shipped_names(Model)
GPT = {"family": "gpt", "model": "GPT 22B", "layers": "48", "hidden": "6144", "heads": "64", "vocab": "51200"}


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("LLAMA3_70B", "llama-3-70b"),
        ("Llama 3.1 405b", "llama-3.1-405b"),
        ("Llama3 70B", "llama-3-70b"),
        ("Llama3 8b Finetuning LORA", "llama-3-8b"),
        ("meta-llama/Meta-Llama-3.1-8B", "llama-3-8b"),
        ("Llama2-7B", "llama-2-7b"),
        ("LLaMA-13B", "llama-2-13b"),
        ("Qwen3_235B_a22B", "qwen3-235b-a22b"),
        ("Qwen3-235B", "qwen3-235b-a22b"),
        ("Qwen3 30B-A3B", "qwen3-30b-a3b"),
        ("NeMo Megatron", "gpt3-175b"),
        ("GPT3-5B", "gpt3-5b"),
        ("GPT 175B", "gpt3-175b"),
        ("InternLM 7B", "internlm-7b"),
        ("Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("DeepSeek-V3", "deepseek-v3"),
        ("DeepSeekV3", "deepseek-v3"),
        ("Kimi-K2-Instruct", "kimi-k2"),
        ("GPT OSS 120B", "gpt-oss-120b"),
        ("MPT-7B", "mpt-7b"),
        ("Nemotron-4 340B", "nemotron-4-340b"),
        ("Yi-34B-200K", "yi-34b"),
        ("Qwen3.5-VL-27B", "qwen3.5-27b"),
        ("Qwen2.5-VL-72B-Instruct", "qwen2.5-vl-72b"),
        ("LLaVA-v1.5-7B", "llava-1.5-7b"),
        ("Llama-3.2-11B-Vision", "llama-3.2-vision-11b"),
        ("InternVL2_5-8B", "internvl2.5-8b"),
        ("ViT-10B + LLAMA-70B", "vit-10b-llama-70b"),
    ],
)
def test_names_are_read_in_many_spellings(written, name):
    assert spec_name(written, "", SHIPPED) == name


@pytest.mark.parametrize(
    "written", ["GPT 52B", "GPT-7B", "InternLM2 7B", "Llama 3.2 1B", "Falcon 40B", "Qwen3.5 35B", ""]
)
def test_other_names_mean_no_spec(written):
    assert spec_name(written, "", SHIPPED) is None


@pytest.mark.parametrize("written", ["UL2 20B", "RoBERTa", "Jamba 1.5", "Qwen3-Next-80B-A3B", "Wan 2.1 14B"])
def test_layers_that_are_not_described_are_refused(written):
    assert undescribed_layers(written)
    with pytest.raises(UnusableRecord, match="not described"):
        model_of_record(record(model=written, family=""))


def test_the_layers_column_cuts_the_shipped_spec():
    whole, seven = shipped_module("llama-3.1-405b"), model_of_record(record(model="Llama 3.1 405b", layers="7")).module
    assert seven.layers == 7
    assert (seven.hidden, seven.ffn, seven.vocab) == (whole.hidden, whole.ffn, whole.vocab)


def test_gpt_by_its_columns_has_the_published_parameters():
    """Korthikanti et al., arXiv 2205.05198, table 3: 22.0 billion."""
    module = model_of_record(record(GPT)).module
    assert (module.ffn, module.gated, module.norm, module.positions) == (4 * 6144, False, "layer", "learned")
    assert parameter_counts(module).total / 1e9 == pytest.approx(22.0, rel=0.02)


def test_llama_by_its_columns_equals_the_shipped_spec():
    columns = {"layers": "32", "hidden": "4096", "ffn": "14336", "heads": "32", "kv_heads": "8", "vocab": "128256"}
    assert model_of_record(record(columns)).module == shipped_module("llama-3-8b")


def test_experts_by_columns():
    shape = {"layers": "32", "hidden": "4096", "ffn": "14336", "heads": "32", "kv_heads": "8", "vocab": "32000"}
    made = model_of_record(record(shape, family="mixtral", model="mixtral-8x7b-e8k2", experts="8", topk="2"))
    assert made.module.moe == Experts(experts=8, topk=2, ffn=14336)
    assert parameter_counts(made.module).total == 46_702_792_704  # as Mistral's weights have
    assert not made.assumed


def test_a_vocabulary_that_is_not_said_is_assumed_and_told():
    assert model_of_record(record(GPT, vocab="")).assumed == ("vocab",)


def test_a_shape_of_another_size_is_impossible():
    with pytest.raises(UnusableRecord) as why:
        model_of_record(record(GPT, params_b="175"))
    assert why.value.reason == "impossible figures"


@pytest.mark.parametrize(
    "cells",
    [
        {"ffn": "", "family": "llama"},
        {"family": "silent of", "model": "X", "ffn": ""},
        {"heads": "7"},
        {"layers": "20000"},
    ],
)
def test_shapes_that_say_too_little_or_too_much_are_refused(cells):
    with pytest.raises(UnusableRecord):
        model_of_record(record(GPT, **cells))


def test_a_family_that_is_not_known_is_told_by_its_mlp():
    plain = model_of_record(record(GPT, family="", model="X", ffn="24576"))
    gated = model_of_record(record(GPT, family="", model="X", ffn="16384"))
    assert (plain.module.gated, gated.module.gated) == (False, True)
    assert plain.assumed == gated.assumed == ("family",)


def test_arguments_of_megatron_change_the_style():
    said = "swiglu=True; normalization=RMSNorm; untie-embeddings-and-output-weights=True; rotary-percent=1.0"
    module = model_of_record(record(GPT, other_settings=said, vocab="", tp="2")).module
    assert (module.gated, module.norm, module.tied, module.positions) == (True, "rms", False, "rope")
    assert module.ffn == int(4 * 6144 * 2 / 3 / 64) * 64
    assert module.vocab == 50432  # GPT-2's 50,257 in multiples of 128 on each of 2 ranks


def test_bert_and_t5_are_read_from_their_columns():
    """Of T5 the record's tokens are the encoder's; the decoder's are as usual, and it has as many layers."""
    shape = {"hidden": "768", "heads": "12", "ffn": "3072", "seq_len": "512", "tp": "2"}
    settings = "encoder-num-layers=12; transformer-impl=local"
    half = model_of_record(
        record(**shape, layers="", model="t5_release", family="mcore-test-t5", other_settings=settings)
    )
    (encoder,) = half.encoders
    assert encoder.seq == 512 and encoder.per_token == 1 / 128 and half.decoder_tokens == 128
    assert encoder.module.layers == half.module.layers == 12
    assert (
        encoder.module.feature_width == half.module.cross_attention_width == 768
        and half.module.output_vocabulary % 256 == 0
    )
    bert = model_of_record(record(**shape, layers="24", model="bert_release", family="mcore-test-bert"))
    assert bert.module.output_vocabulary == 30720 and not bert.module.causal and not bert.encoders
    with pytest.raises(UnusableRecord, match="no spec of the model"):
        model_of_record(record(model="T5 3B", family="nemo-t5", layers="", hidden="", heads=""))


def test_shipped_hybrids_are_found():
    assert model_of_record(record(model="Nemotron-H 56B", family="", layers="", hidden="", heads="")).module.ssm


@pytest.mark.parametrize("ahead", ["", "mtp-num-layers=1;", "mtp-num-layers=none;"])
@pytest.mark.parametrize("groups", ["", "moe-router-num-groups=1;"])
def test_layers_of_a_record_are_without_those_that_predict_ahead(ahead, groups):
    """Where arguments say which layers have experts; and a 1 is a number there, not only a switch."""
    shape = {**GPT, "family": "mixtral", "model": "made", "layers": "4", "ffn": "8192", "experts": "8", "topk": "2"}
    settings = f"{ahead}{groups}moe-layer-freq=([0]*1+[1]*3);swiglu=1"
    found = model_of_record(record({**shape, "params_b": "", "other_settings": settings})).module
    assert (found.layers, found.mtp, found.moe.dense_layers) == (4, 0, 1)
