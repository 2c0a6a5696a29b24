"""A rule is found for exactly the patterns that some spec expresses."""

from itertools import product

import pytest

from planner.hf.decoders import full_attention_rule
from planner.hf.moe_decoders import moe_layer_rule
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts


def shape(layers, **fields):
    return Decoder(layers=layers, hidden=8, heads=2, ffn=8, vocab=9, **fields)


def sparse_of(layers, dense, every):
    module = shape(layers, moe=Experts(experts=2, topk=1, ffn=4, dense_layers=dense, every=every))
    return tuple(module.layer_kind(layer) == "moe" for layer in range(layers))


def full_of(layers, every):
    module = shape(layers, window=3, full_every=every)
    return tuple(module.window_of(layer) is None for layer in range(layers))


@pytest.mark.parametrize("layers", range(1, 8))
def test_every_pattern_of_experts(layers):
    possible = {sparse_of(layers, dense, every) for dense in range(layers) for every in range(1, layers + 1)}
    for pattern in product([False, True], repeat=layers):
        if any(pattern):
            rule = moe_layer_rule(pattern)
            assert (rule is not None) == (pattern in possible), pattern
            assert rule is None or sparse_of(layers, *rule) == pattern


@pytest.mark.parametrize("layers", range(1, 8))
def test_every_pattern_of_windows(layers):
    possible = {full_of(layers, every) for every in range(layers + 1)}
    for pattern in product([False, True], repeat=layers):
        every = full_attention_rule(pattern)
        assert (every is not None) == (pattern in possible), pattern
        assert every is None or full_of(layers, every) == pattern
