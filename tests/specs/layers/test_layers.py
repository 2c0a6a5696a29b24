"""Kinds of layers, one by one and counted."""

import itertools

import pytest

from planner.errors import InputError
from planner.specs import library
from planner.specs.layers import Audio, Decoder, Vit, kind_counts, layer_kinds
from planner.specs.layers.blocks import kind_blocks, only_reads
from planner.specs.layers.components import Experts, StateSpace
from planner.specs.model import Model
from planner.specs.parameters import parameter_counts

SHAPE = {"hidden": 16, "heads": 4, "ffn": 32}
DENSE = Decoder(**SHAPE, layers=3, vocab=10)
VIT = Vit(**SHAPE, layers=4, patch=2, out=8, window=9, full_layers=(1, 3))
AUDIO = Audio(**SHAPE, layers=2, mels=4, out=8)


def moe(layers: int, dense: int, every: int) -> Decoder:
    return Decoder(
        **SHAPE, layers=layers, vocab=10, moe=Experts(experts=4, topk=1, ffn=8, dense_layers=dense, every=every)
    )


ROWS = {**SHAPE, "layers": 2, "patch": 2, "merge": 2, "out": 8, "positions": "rope_2d"}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"hidden": 24}, "heads 6 wide do not rotate by two axes"),
        ({"class_token": True, "merge": 1}, "a class token has no row and column"),
        ({"window": 60}, "a window of 60 patches is no square of whole outputs"),
        ({"window": 9}, "a window of 9 patches is no square of whole outputs"),
        ({"window": 16, "merge": 3}, "a window of 16 patches is no square of whole outputs"),
    ],
)
def test_towers_that_have_no_rows_and_columns(said, message) -> None:
    assert Vit(**ROWS, window=16).window_side == 4
    with pytest.raises(ValueError, match=message):
        Vit(**{**ROWS, **said})


@pytest.mark.parametrize(
    "said",
    [
        {"rope_sections": (1, 1)},
        {"rope_sections": (1, 1, 1, 1)},
        {"rope_sections": (1, 2, 2)},
        {"rope_sections": (1, 1, 2), "positions": "none"},
        {"rope_sections": (1, 1, 2), "rotary_share": 0.5},
    ],
)
def test_sections_that_are_not_a_heads_pairs(said) -> None:
    shape = {**SHAPE, "head_dim": 8, "layers": 1, "vocab": 9}
    assert Decoder(**shape, rope_sections=(1, 1, 2)).position_axes == 3
    with pytest.raises(ValueError, match=r"are not the .* rotary pairs of a head"):
        Decoder(**{**shape, **said})


def test_kinds_of_modules() -> None:
    assert layer_kinds(DENSE) == ("dense",) * 3
    assert layer_kinds(VIT) == ("encoder",) * 4
    assert layer_kinds(AUDIO) == ("encoder",) * 2
    assert VIT.routed_experts is DENSE.routed_experts is None


def test_experts_start_behind_the_dense_layers_and_come_every_so_often() -> None:
    assert layer_kinds(moe(4, 0, 1)) == ("moe",) * 4
    assert layer_kinds(moe(5, 1, 1)) == ("dense", "moe", "moe", "moe", "moe")
    assert layer_kinds(moe(4, 0, 2)) == ("dense", "moe", "dense", "moe")  # Llama-4 Maverick
    assert layer_kinds(moe(6, 1, 2)) == ("dense", "dense", "moe", "dense", "moe", "dense")
    assert layer_kinds(moe(2, 9, 1)) == ("dense",) * 2


@pytest.mark.parametrize(("dense", "every"), list(itertools.product((0, 1, 3, 7), (1, 2, 3))))
def test_counts_are_of_the_kinds_one_by_one(dense: int, every: int) -> None:
    module = moe(7, dense, every)
    kinds = layer_kinds(module)
    counts = kind_counts(module)
    assert counts == {kind: kinds.count(kind) for kind in set(kinds)} == kind_counts(module, range(7))
    first, last = kind_counts(module, range(3)), kind_counts(module, range(3, 7))
    assert {kind: first.get(kind, 0) + last.get(kind, 0) for kind in counts} == counts


def test_published_numbers_of_layers_with_experts() -> None:
    published = {"deepseek-v3": (58, 3), "kimi-k2": (60, 1), "deepseek-v2-lite": (26, 1), "llama-4-maverick": (24, 24)}
    for name, (experts, dense) in published.items():
        assert kind_counts(library.read_named(name, Model)[0].modules["llm"]) == {"moe": experts, "dense": dense}
    assert kind_counts(library.read_named("llama-4-scout", Model)[0].modules["llm"]) == {"moe": 48}


def test_a_pattern_says_the_blocks_of_each_layer() -> None:
    parts = {"state_space": StateSpace(heads=2, head_dim=4, state=4), "moe": Experts(experts=4, topk=1, ffn=8)}
    module = Decoder(**SHAPE, layers=4, vocab=10, **parts, pattern="M *- M ME")
    assert layer_kinds(module) == ("state_space", "attention+mlp", "state_space", "state_space+experts")
    assert [kind_blocks(kind) for kind in layer_kinds(module)[1:3]] == [("attention", "mlp"), ("state_space",)]
    assert kind_counts(module) == {"state_space": 2, "attention+mlp": 1, "state_space+experts": 1}
    assert kind_counts(module, (1, 2)) == {"attention+mlp": 1, "state_space": 1}


def test_layers_of_cross_attention_alone_only_read() -> None:
    module = Decoder(**SHAPE, layers=4, vocab=10, cross=6, cross_gates=True, pattern="*- X- *X- X")
    assert [only_reads(kind) for kind in layer_kinds(module)] == [False, True, False, True]
    assert [module.gates_residuals(kind) for kind in layer_kinds(module)] == [False, True, True, True]
    plain = Decoder(**SHAPE, layers=4, vocab=10, cross=6, pattern="*- X- *X- X")
    assert parameter_counts(module).total == parameter_counts(plain).total + 2 + 3 + 1


def test_windows() -> None:
    oss = library.read_named("gpt-oss-120b", Model)[0].modules["llm"]
    assert [oss.window_of(layer) for layer in range(4)] == [128, None, 128, None]
    every = Decoder(**SHAPE, layers=2, vocab=10, window=5)
    assert [every.window_of(layer) for layer in range(2)] == [5, 5]
    assert [VIT.window_of(layer) for layer in range(4)] == [9, None, 9, None]
    assert DENSE.window_of(0) is AUDIO.window_of(0) is None


def test_a_block_that_nothing_is_said_of_is_named():
    class Convolved(Decoder, tag_field="kind", tag="convolved"):
        def layer_kind(self, layer: int) -> str:
            return "convolution+mlp"

    with pytest.raises(InputError, match="nothing says the parameters of a block `convolution`") as caught:
        parameter_counts(Convolved(**SHAPE, layers=2, vocab=10))
    assert "one of attention" in caught.value.fix
