"""Operations and widths of modules, against counts made another way."""

import pytest

from planner.specs import library
from planner.specs.model import Decoder, Model, Vit
from planner.specs.parameters import layer_parameters
from planner.specs.shapes import (
    end_flops,
    exchange_elements,
    key_width,
    layer_activation_elements,
    layer_flops,
    query_width,
)

DECODER = Decoder(layers=2, hidden=64, heads=8, kv_heads=2, head_dim=16, ffn=96, vocab=1000)
VIT = Vit(layers=2, hidden=64, heads=4, ffn=128, patch=8, merge=2, out=32)


def test_widths_follow_the_heads_and_not_the_hidden_size():
    assert (query_width(DECODER), key_width(DECODER)) == (128, 32)


def test_matmuls_cost_two_operations_a_weight_and_attention_half_when_causal():
    """Per token, every weight of a layer once; QKᵀ and PV are 2·s²·width each, of which a decoder needs half."""
    squared, linear = layer_flops(DECODER)
    assert linear == 2 * layer_parameters(DECODER)
    assert squared == 2 * 2 * 128 / 2
    assert layer_flops(VIT)[0] == 2 * 2 * 64


def test_ends_are_the_head_or_the_patches_and_the_projector():
    assert end_flops(DECODER) == 2 * 64 * 1000
    wide = 64 * 4  # four patches become one token
    assert end_flops(VIT) == 2 * 3 * 8 * 8 * 64 + 2 * (wide * wide + wide * 32) / 4


@pytest.mark.parametrize("name", library.names(Model))
def test_recompute_keeps_less(name):
    for module in library.read(name, Model)[0].modules.values():
        none, selective, full = (layer_activation_elements(module, how) for how in ("none", "selective", "full"))
        assert none > selective > full == module.hidden


@pytest.mark.parametrize(("degree", "repeated"), [(1, 2), (2, 2), (4, 4), (8, 8)])
def test_few_key_heads_are_repeated_over_many_ranks(degree, repeated):
    """Queries and the output once, keys and values as often as ranks need them."""
    assert exchange_elements(DECODER, degree) == 2 * 128 + 2 * repeated * 16
