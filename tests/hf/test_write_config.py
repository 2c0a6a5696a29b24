"""A config that is written and read again gives the same module."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner import hf
from planner.errors import InputError
from planner.specs.layers import Audio, Decoder
from planner.specs.layers.components import Experts, LatentAttentionShape
from planner.specs.layers.rope_scaling import LinearScaling, Llama3Scaling, YarnScaling

PLAIN = {"layers": 2, "hidden": 16, "heads": 4, "ffn": 24, "vocab": 30}


@st.composite
def decoders(draw):
    """Llama-like shapes, in the one way of saying each: nothing is said that is so by default."""
    heads, dim = draw(st.integers(1, 8)), 2 * draw(st.integers(1, 8))
    hidden = draw(st.sampled_from([heads * dim, 8 * heads, 24]))
    layers = draw(st.integers(1, 9))
    divisors = [each for each in range(1, heads) if heads % each == 0]
    bias, qk_norm = draw(st.sampled_from(["none", "qkv", "attention", "all"])), draw(st.booleans())
    window = draw(st.none() | st.integers(1, 999))
    every = draw(st.integers(0, layers)) if window else 0
    assume(every != 1)
    moe = None
    if draw(st.booleans()):
        experts = draw(st.integers(1, 9))
        moe = Experts(
            experts=experts,
            topk=draw(st.integers(1, experts)),
            ffn=draw(st.integers(1, 99)),
            dense_layers=draw(st.integers(0, layers - 1)),
            normalised=draw(st.booleans()),
        )
    return Decoder(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=draw(st.sampled_from([None, *divisors])),
        head_dim=None if heads * dim == hidden else dim,
        ffn=draw(st.integers(1, 99)),
        vocab=draw(st.integers(1, 99)),
        bias=bias,
        tied=draw(st.booleans()),
        qk_norm=qk_norm,
        window=window,
        full_every=every,
        moe=moe,
        rope_base=draw(st.floats(1.5, 1e7)),
        rope_scaling=draw(st.none() | scalings()),
        norm_eps=draw(st.floats(0, 1)),
    )


def scalings():
    factors, tokens = st.floats(1, 99), st.integers(1, 99)
    return (
        st.builds(LinearScaling, factor=factors)
        | st.builds(Llama3Scaling, factor=factors, low=st.floats(0.1, 1), high=st.floats(2, 9), original=tokens)
        | st.builds(YarnScaling, factor=factors, original=tokens, attention=st.none() | factors, truncate=st.booleans())
    )


@given(decoders())
def test_there_and_back(tmp_path_factory, module):
    try:
        config = hf.to_config(module)
    except InputError as error:
        assert error.fix and not plain(module)
        return
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(json.dumps(config))
    imported = hf.read(path)
    assert imported.model.modules == {"llm": module}
    assert not imported.notes


def plain(module):
    """What Llama and Qwen make: these are always written."""
    return module.moe is None and module.window is None and (module.bias == "none" or not module.qk_norm)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, "llama"),
        ({"bias": "all"}, "llama"),
        ({"bias": "qkv"}, "qwen2"),
        ({"qk_norm": True}, "qwen3"),
        ({"window": 5}, "mistral"),
        ({"moe": Experts(experts=4, topk=2, ffn=24)}, "mixtral"),
        ({"moe": Experts(experts=4, topk=2, ffn=7), "qk_norm": True}, "qwen3_moe"),
        ({"gated": False, "norm": "layer", "bias": "all", "positions": "learned", "max_positions": 9}, "gpt2"),
    ],
)
def test_each_goes_to_its_family(tmp_path, fields, kind):
    module = Decoder(**PLAIN, **fields)
    config = hf.to_config(module)
    assert config["model_type"] == kind
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert hf.read(tmp_path).model.modules["llm"] == module


@pytest.mark.parametrize(
    "fields",
    [
        {"gated": False},
        {"norm": "layer"},
        {"sinks": True},
        {"latent": LatentAttentionShape(kv_rank=4, rope_dim=2, nope_dim=2, value_dim=4)},
        {"bias": "qkv", "qk_norm": True},
        {"moe": Experts(experts=4, topk=2, ffn=7, shared_ffn=8), "qk_norm": True},
        {"moe": Experts(experts=4, topk=2, ffn=7)},  # Mixtral's are as wide as the dense MLP would be
        {"moe": Experts(experts=4, topk=2, ffn=24, scores="sigmoid")},
    ],
)
def test_what_no_family_has_is_refused(fields):
    with pytest.raises(InputError) as refused:
        hf.to_config(Decoder(**PLAIN, **fields))
    assert refused.value.where == "decoder" and refused.value.fix


def test_encoders_are_not_written():
    with pytest.raises(InputError) as refused:
        hf.to_config(Audio(layers=1, hidden=8, heads=2, ffn=8, mels=4, out=8))
    assert refused.value.where == "audio"
