"""Layers that predict ahead: parameters, FLOPs and memory of a config.json with them beside those of it without."""

import json

import pytest

from planner import hf
from planner.costs.layout_columns import columns_of
from planner.costs.memory.model_states import stage_parameters
from planner.errors import InputError
from planner.models import unsupported
from planner.plan.plan_file import Layout
from planner.specs.base import Ranks, with_fields
from planner.specs.parameters import active_parameters, layer_parameters, parameter_counts
from planner.specs.shapes import embedding_head_flops
from tests.hf import configs
from tests.hf.test_against_transformers import TEXTS


@pytest.fixture
def read(tmp_path):
    def read(config, mtp=True):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return hf.read(tmp_path, mtp)

    return read


def test_a_published_total_is_met(read):
    """14e9 (README of DeepSeek-V3), with copies of embedding and head, which its files hold once more."""
    with_it, without = (read(configs.DEEPSEEK_V3, mtp).model.modules["llm"] for mtp in (True, False))
    more = parameter_counts(with_it).total - parameter_counts(without).total
    assert more + 2 * 129280 * 7168 == pytest.approx(14e9, rel=0.04)
    assert more - (active_parameters(with_it) - active_parameters(without)) == (256 - 8) * 3 * 7168 * 2048


def test_weights_of_another_are_as_many(shared):
    """27,781,427,952 parameters are in the safetensors files of Qwen/Qwen3.5-27B."""
    path = shared / "data" / "hf_configs" / "Qwen--Qwen3.5-27B.json"
    assert hf.read(path, mtp=True).source_parameters == 27_781_427_952


@pytest.mark.parametrize("number", [1, 3])
def test_each_is_a_layer_a_projection_three_norms_and_a_head_more(read, number):
    config = {**configs.DEEPSEEK_V3, "num_nextn_predict_layers": number}
    with_it, without = (read(config, mtp).model.modules["llm"] for mtp in (True, False))
    hidden, vocab = without.hidden, without.vocab
    own = layer_parameters(without, "moe") + 2 * hidden * hidden + 3 * hidden
    assert parameter_counts(with_it).total == parameter_counts(without).total + number * own
    more = embedding_head_flops(with_it) - embedding_head_flops(without)
    assert more == number * 2 * (2 * hidden * hidden + hidden * vocab)
    assert (with_it.layers, with_it.mtp, without.mtp) == (61 + number, number, 0)


@pytest.mark.parametrize("tied", [False, True])
def test_the_last_stage_has_a_copy_of_the_embedding_unless_its_head_is_one(read, tied):
    config = {**configs.LLAMA_8B, "num_nextn_predict_layers": 1, "tie_word_embeddings": tied}
    module = read(config).model.modules["llm"]
    layout = Layout(ranks=Ranks(range(2)), pp=2, dtype="bf16")
    last = stage_parameters(module, columns_of(layout), 1).embedding_head
    words, hidden = module.vocab * module.hidden, module.hidden
    assert float(last) == (1 if tied else 2) * words + 2 * hidden * hidden + 4 * hidden
    assert module.ties_head


def test_a_layer_ahead_is_as_the_last_word_of_a_pattern(read):
    module = read({"model_type": "qwen3_next", **TEXTS["qwen3_next"], "mtp_num_hidden_layers": 2}).model.modules["llm"]
    words = module.pattern.split()
    assert len(words) == module.layers
    assert words[-3:] == [words[-1]] * 3


def test_notes_name_them_only_where_they_are_left_out(read):
    left_out = [[note.key for note in read(configs.DEEPSEEK_V3, mtp).notes] for mtp in (False, True)]
    assert ["num_nextn_predict_layers" in keys for keys in left_out] == [True, False]


@pytest.mark.parametrize(
    "config",
    [
        configs.LLAMA_8B,
        {**configs.LLAMA_8B, "num_nextn_predict_layers": 0},
        {**configs.LLAMA_8B, "num_nextn_predict_layers": "1"},
        {**configs.LLAMA_8B, "num_nextn_predict_layers": 10**9},
        {**configs.LLAMA_8B, "num_mtp_modules": 3, "mtp_transformer_layers": 2},
        configs.NEMOTRON_H_8B | {"text_config": []},
    ],
)
def test_a_file_without_such_layers_is_refused_at_their_key(read, config):
    with pytest.raises(InputError, match="predict ahead") as refused:
        read(config)
    assert refused.value.fix == "leave out --mtp"


def test_one_layer_at_least_predicts_the_next_token(read):
    module = read(configs.DEEPSEEK_V3).model.modules["llm"]
    with pytest.raises(InputError, match="predict ahead"):
        with_fields(module, mtp=62)


def test_runs_refuse_them_by_name(read):
    assert "predict more tokens ahead" in (unsupported(read(configs.DEEPSEEK_V3).model.modules["llm"]) or "")
