"""The torch modules are what the specs say, to the parameter; first weights depend on seed and name alone."""

import itertools

import pytest
import torch

from planner.errors import InputError
from planner.models.build import build, init_weights, unsupported
from planner.specs import library
from planner.specs.model import Audio, Decoder, Model, Vit
from planner.specs.parameters import layer_parameters, parameters
from planner.specs.parts import Experts, Latent

BOTH = (True, False)
META = torch.device("meta")
DECODER = {"layers": 2, "hidden": 24, "heads": 4, "ffn": 20, "vocab": 30}
VIT = {"layers": 2, "hidden": 24, "heads": 4, "ffn": 20, "patch": 3, "out": 10}


def decoders():
    kinds = itertools.product(BOTH, ("rms", "layer"), ("none", "qkv", "all"), ("rope", "learned"), BOTH)
    for gated, norm, bias, positions, tied in kinds:
        yield Decoder(**DECODER, gated=gated, norm=norm, bias=bias, positions=positions, max_positions=7, tied=tied)
    yield Decoder(**DECODER, kv_heads=2, head_dim=10)


def vits():
    for gated, norm, bias, merge in itertools.product(BOTH, ("rms", "layer"), ("none", "qkv", "all"), (1, 2)):
        yield Vit(**VIT, gated=gated, norm=norm, bias=bias, merge=merge)
    yield Vit(**VIT, kv_heads=1, head_dim=8, frames=2, channels=1)


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameters_are_counted_exactly():
    for spec in [*decoders(), *vits()]:
        model = build(spec, device=META)
        assert count(model) == parameters(spec).total, spec
        assert count(model.layers[0]) == layer_parameters(spec), spec


def test_first_weights_depend_on_seed_and_name_alone():
    shallow, deep = Decoder(**DECODER, bias="all"), Decoder(**{**DECODER, "layers": 3}, bias="all")
    models = [build(shallow), build(deep), build(shallow, dtype=torch.bfloat16)]
    for model in models:
        init_weights(model, 5)
    first, second, half = (dict(model.named_parameters()) for model in models)
    for name in first:
        assert torch.equal(first[name], second[name])
        assert torch.equal(first[name].bfloat16(), half[name])
    assert first["layers.0.attention_norm.weight"].eq(1).all()
    assert first["layers.0.mlp.up.bias"].eq(0).all()
    assert 0.9 < first["embedding.weight"].std() * 24**0.5 < 1.1
    init_weights(models[0], 6)
    assert not torch.equal(first["head.weight"], second["head.weight"])


def test_what_cannot_be_run_says_why():
    assert unsupported(Decoder(**DECODER)) is None
    assert "windows" in unsupported(Vit(**VIT, window=4))
    odd = Decoder(**{**DECODER, "head_dim": 5})
    assert "odd" in unsupported(odd)
    with pytest.raises(InputError):
        build(odd)


REFUSED = {
    "experts": (
        "mixtures of experts",
        Decoder(**DECODER, moe=Experts(experts=4, topk=1, ffn=8)),
    ),
    "latent": (
        "latent attention",
        Decoder(**DECODER, latent=Latent(kv_rank=8, rope_dim=2, nope_dim=4, value_dim=4)),
    ),
    "window": ("sliding window", Decoder(**DECODER, window=4)),
    "norms": ("norms of queries and keys", Decoder(**DECODER, qk_norm=True)),
    "sinks": ("attention sinks", Decoder(**DECODER, sinks=True)),
    "biases": ("biases of attention", Decoder(**DECODER, bias="attention")),
    "audio": ("audio encoders", Audio(layers=2, hidden=24, heads=4, ffn=20, mels=8, out=10)),
    "image windows": ("windows", Vit(**VIT, window=4)),
    "image biases": ("biases of attention", Vit(**VIT, bias="attention")),
}


@pytest.mark.parametrize("part", REFUSED)
def test_what_the_zoo_lacks_is_one_error_that_names_it(part):
    reason, spec = REFUSED[part]
    assert reason in unsupported(spec)
    with pytest.raises(InputError, match=reason):
        build(spec, device=META)


@pytest.mark.parametrize("name", library.names(Model))
def test_every_shipped_module_is_built_to_the_parameter_or_refused(name):
    for spec in library.read(name, Model)[0].modules.values():
        if unsupported(spec):
            with pytest.raises(InputError):
                build(spec, device=META)
        else:
            assert count(build(spec, device=META)) == parameters(spec).total
