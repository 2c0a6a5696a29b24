"""The load-balance loss of a config.json is the one that transformers adds, and is written as it was read."""

import json
from importlib import import_module

import pytest
import torch

from planner import hf
from planner.models.layers.mixture_of_experts import load_balancing_loss
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts

MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "num_local_experts": 6,
    "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02,
}  # fmt: skip


def read(folder, config):
    (folder / "config.json").write_text(json.dumps(config))
    return hf.read(folder)


def test_it_is_transformers_own(tmp_path):
    mixtral = import_module("transformers.models.mixtral.modeling_mixtral")
    moe = read(tmp_path, MIXTRAL | {"output_router_logits": True}).model.modules["llm"].moe
    logits = torch.randn(50, 6, generator=torch.Generator().manual_seed(1))
    chosen = logits.topk(2).indices.flatten().bincount(minlength=6)
    ours = moe.balance * load_balancing_loss(logits.softmax(-1), chosen) / len(logits)
    want = 0.02 * mixtral.load_balancing_loss_func((logits,), 6, 2)
    torch.testing.assert_close(ours, want)
    layers = MIXTRAL | {"output_router_logits": True, "num_hidden_layers": 4}
    imported = read(tmp_path, layers)
    of_each = imported.model.modules["llm"].moe.balance * load_balancing_loss(logits.softmax(-1), chosen) / len(logits)
    torch.testing.assert_close(4 * of_each, 0.02 * mixtral.load_balancing_loss_func((logits,) * 4, 6, 2))
    assert [note.kind for note in imported.notes] == ["assumed"]


def test_it_is_off_where_the_file_does_not_ask_for_it(tmp_path):
    assert read(tmp_path, MIXTRAL).model.modules["llm"].moe.balance == 0
    assert read(tmp_path, MIXTRAL | {"output_router_logits": False}).model.modules["llm"].moe.balance == 0


@pytest.mark.parametrize("balance", [0.0, 0.25])
def test_there_and_back(tmp_path, balance):
    shape = {"hidden": 32, "heads": 4, "ffn": 48, "vocab": 40}
    module = Decoder(layers=4, **shape, moe=Experts(experts=4, topk=2, ffn=48, balance=balance))
    assert read(tmp_path, hf.to_config(module)).model.modules["llm"] == module
