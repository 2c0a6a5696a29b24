"""Weights are of one function: another than their config.json says is refused, and what it said is saved again."""

import json

import pytest
import torch

from planner import hf
from planner.errors import InputError
from planner.models.build import build, init_weights
from planner.models.checkpoints.hugging_face import config_of, require_same_function
from planner.specs.base import with_fields
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts
from planner.specs.layers.rope_scaling import LinearScaling, Llama3Scaling
from tests.checkpoint_files import save_checkpoint

PLAIN = {"layers": 2, "hidden": 16, "heads": 4, "ffn": 24, "vocab": 20}
LLAMA = Decoder(**PLAIN, kv_heads=2, rope_scaling=Llama3Scaling(factor=8, original=64))
MIXTRAL = Decoder(**PLAIN, moe=Experts(experts=4, topk=2, ffn=24))
NONE = frozenset[str]()


def saved(folder, spec, dtype=torch.float64, source=None, **keys):
    """A folder with weights of this spec, and other keys in its config.json."""
    model = build(spec, dtype=dtype)
    init_weights(model, 1)
    save_checkpoint(dict(model.named_parameters()), spec, folder, source)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | keys))
    return folder


@pytest.mark.parametrize(
    ("spec", "change", "field"),
    [
        (LLAMA, {"rope_base": 500.0}, "rope_base"),
        (LLAMA, {"norm_eps": 1e-6}, "norm_eps"),
        (LLAMA, {"rope_scaling": None}, "rope_scaling"),
        (LLAMA, {"rope_scaling": LinearScaling(factor=8)}, "rope_scaling"),
        (LLAMA, {"rope_scaling": Llama3Scaling(factor=4, original=64)}, "rope_scaling.factor"),
        (LLAMA, {"window": 5}, "window"),
        (LLAMA, {"activation": "relu"}, "activation"),
        (LLAMA, {"tied": True}, "tied"),
        (MIXTRAL, {"moe": Experts(experts=4, topk=1, ffn=24)}, "moe.topk"),
        (MIXTRAL, {"moe": Experts(experts=4, topk=2, ffn=24, normalised=False)}, "moe.normalised"),
    ],
)
def test_another_function_is_refused_and_can_be_insisted_on(tmp_path, spec, change, field):
    saved(tmp_path, spec)
    require_same_function({"llm": spec}, tmp_path, NONE)
    other = with_fields(spec, **change)
    with pytest.raises(InputError, match=f"{field} .*`llm` of the plan has") as raised:
        require_same_function({"llm": other}, tmp_path, NONE)
    assert raised.value.where == str(tmp_path / "config.json")
    assert f"--allow-different {field}" in raised.value.fix
    require_same_function({"llm": other}, tmp_path, frozenset({field}))
    require_same_function({"llm": other}, tmp_path, frozenset({field.partition(".")[0]}))
    with pytest.raises(InputError):
        require_same_function({"llm": other}, tmp_path, frozenset({"vocab"}))


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_scaling"),
        ({"new_idea": True}, "new_idea"),
    ],
)
def test_what_is_not_computed_is_refused(tmp_path, keys, key):
    spec = with_fields(LLAMA, rope_scaling=None)
    saved(tmp_path, spec, **keys)
    with pytest.raises(InputError, match=f"{key} .*, which is not computed"):
        require_same_function({"llm": spec}, tmp_path, NONE)
    require_same_function({"llm": spec}, tmp_path, frozenset({key}))


def test_how_it_is_trained_is_not_compared(tmp_path):
    saved(tmp_path, MIXTRAL, attention_dropout=0.1)
    balanced = Experts(experts=4, topk=2, ffn=24, balance=0.01, capacity=1.25)
    require_same_function({"llm": with_fields(MIXTRAL, moe=balanced, kv_heads=4, head_dim=4)}, tmp_path, NONE)


def test_weights_without_a_config_are_refused(tmp_path):
    saved(tmp_path, LLAMA)
    (tmp_path / "config.json").unlink()
    with pytest.raises(InputError, match=r"there is no config\.json"):
        require_same_function({"llm": LLAMA}, tmp_path, NONE)
    require_same_function({"llm": LLAMA}, tmp_path, frozenset({"config.json"}))


def test_a_saved_folder_keeps_the_file_that_it_began_with(tmp_path):
    own = {"max_position_embeddings": 4096, "bos_token_id": 7, "torch_dtype": "bfloat16", "attention_dropout": 0.1}
    source = saved(tmp_path / "source", LLAMA, **own)
    first = json.loads((source / "config.json").read_text())
    again = saved(tmp_path / "again", LLAMA, torch.float32, source)
    assert json.loads((again / "config.json").read_text()) == first | {"torch_dtype": "float32"}
    changed = with_fields(LLAMA, rope_base=500.0)
    kept = config_of(changed, source)
    assert (kept["max_position_embeddings"], kept["bos_token_id"], kept["rope_theta"]) == (4096, 7, 500.0)
    (tmp_path / "config.json").write_text(json.dumps(kept))
    assert hf.read(tmp_path).model.modules["llm"] == changed
