"""What a job trains of each module: its counts of parameters, and what cannot be trained."""

import pytest

from planner.errors import InputError
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.layers import kind_counts
from planner.specs.layers.trained import Lora
from planner.specs.model import Model
from planner.specs.parameters import parameter_counts
from planner.specs.trained_parameters import adapter_parameters, trained_parameters, with_trained


def model(name):
    return library.read_named(name, Model)[0]


def test_all_none_and_the_projector_of_a_vision_tower():
    """Published of Qwen2.5-VL-7B: its merger has 44.6 million parameters (two linears behind a norm, which stays)."""
    vision = model("qwen2.5-vl-7b").modules["vision"]
    wide = 4 * vision.hidden
    assert trained_parameters(vision) == parameter_counts(vision).total
    assert trained_parameters(with_fields(vision, trained="none")) == 0
    assert trained_parameters(with_fields(vision, trained="projector")) == wide * (wide + 1) + vision.out * (wide + 1)


def test_adapters_of_llama_2_7b_are_those_that_peft_counts():
    """4,194,304 for rank 8 beside queries, keys, values and outputs; 19,988,480 beside all linears of its layers."""
    llama = model("llama-2-7b").modules["llm"]
    assert trained_parameters(with_fields(llama, trained=Lora(rank=8, parts=("qkv", "output")))) == 8_388_608
    assert trained_parameters(with_fields(llama, trained=Lora(rank=8))) == 19_988_480


@pytest.mark.parametrize("name", ["deepseek-v3", "nemotron-h-8b", "qwen3-30b-a3b", "t5-11b", "llama-3-8b"])
def test_adapters_grow_with_their_rank_and_ranks_of_tp_share_one_side(name):
    for module in model(name).modules.values():
        for kind in kind_counts(module):
            one, two = (with_fields(module, trained=Lora(rank=rank)) for rank in (4, 8))
            assert 2 * adapter_parameters(one, kind) == adapter_parameters(two, kind)
            assert (
                adapter_parameters(two, kind) / 2 <= adapter_parameters(two, kind, 2) <= adapter_parameters(two, kind)
            )


@pytest.mark.parametrize(
    ("trained", "message"),
    [
        ({"eye": "none"}, "no module `eye`"),
        ({"llm": "projector"}, "`llm` has no projector"),
        ({"vision": "none", "llm": "none"}, "no module is trained"),
    ],
)
def test_what_cannot_be_trained_is_located(tmp_path, trained, message):
    path = tmp_path / "job.yaml"
    path.write_text("format: planner.job/1\ntrained:\n" + "".join(f"  {k}: {v}\n" for k, v in trained.items()))
    with pytest.raises(InputError, match=message) as error:
        with_trained(model("qwen2.5-vl-7b"), trained, path)
    assert error.value.where.startswith(f"{path}:") and error.value.fix


def test_parts_are_in_the_order_of_a_layer():
    assert Lora(rank=4, parts=("mlp", "qkv", "mlp")) == Lora(rank=4, parts=("qkv", "mlp"))


def test_adapters_beside_routed_experts_alone_are_none(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("format: planner.job/1\ntrained: {llm: {lora: 4, parts: [mlp]}}\n")
    with pytest.raises(InputError, match="no matrix of `llm` has adapters"):
        with_trained(model("qwen3-30b-a3b"), {"llm": Lora(rank=4, parts=("mlp",))}, path)


def test_a_tower_alone_has_no_projector_to_train(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("format: planner.job/1\ntrained: {vision: projector}\n")
    with pytest.raises(InputError, match="`vision` feeds no module"):
        with_trained(model("tiny-vit"), {"vision": "projector"}, path)
