"""Operations and widths of modules, against counts made another way."""

import pytest

from planner.specs.base import with_fields
from planner.specs.layers import Audio, Decoder, Vit
from planner.specs.layers.components import Experts, LatentAttentionShape
from planner.specs.parameters import active_layer_parameters, layer_parameters
from planner.specs.shapes import (
    attended_pairs,
    attention_flops,
    attention_output_width,
    embedding_head_flops,
    key_width,
    layer_flops,
    query_width,
    ring_elements,
    ulysses_elements,
    value_width,
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
    assert embedding_head_flops(DECODER) == 2 * 64 * 1000
    wide = 64 * 4  # four patches become one token
    assert embedding_head_flops(VIT) == 2 * 3 * 8 * 8 * 64 + 2 * (wide * wide + wide * 32) / 4


@pytest.mark.parametrize(("degree", "repeated"), [(1, 2), (2, 2), (4, 4), (8, 8)])
def test_few_key_heads_are_repeated_over_many_ranks(degree, repeated):
    """Queries and the output once, keys and values as often as ranks need them."""
    assert ulysses_elements(DECODER, degree) == 2 * 128 + 2 * repeated * 16


MOE = with_fields(DECODER, layers=5, moe=Experts(experts=8, topk=2, ffn=32, shared_ffn=16, dense_layers=1))
LATENT = with_fields(DECODER, latent=LatentAttentionShape(q_rank=24, kv_rank=12, rope_dim=4, nope_dim=8, value_dim=6))


def test_experts_that_a_token_is_not_sent_to_cost_nothing():
    assert layer_flops(MOE, "moe")[1] == 2 * active_layer_parameters(MOE, "moe")
    idle = 6 * 3 * 64 * 32
    assert layer_flops(MOE, "moe")[1] == 2 * (layer_parameters(MOE, "moe") - idle)
    assert layer_flops(MOE, "dense") == layer_flops(DECODER)
    assert layer_flops(MOE, "moe")[0] == layer_flops(DECODER)[0]


def test_a_module_costs_its_layers_in_the_mean():
    squares = [layer_flops(MOE, kind)[1] for kind in ("moe", "moe", "moe", "moe", "dense")]
    assert layer_flops(MOE)[1] == pytest.approx(sum(squares) / 5)


def test_one_expert_as_wide_as_the_mlp_works_as_much():
    """A single expert for all: the layer it replaces, and the router."""
    single = with_fields(DECODER, moe=Experts(experts=1, topk=1, ffn=DECODER.ffn))
    assert layer_flops(single)[1] - layer_flops(DECODER)[1] == 2 * 64


def test_latent_heads_have_widths_of_their_own():
    heads = 8
    assert query_width(LATENT) == key_width(LATENT) == heads * 12
    assert value_width(LATENT) == attention_output_width(LATENT) == heads * 6
    assert layer_flops(LATENT)[0] == 2 * heads * (12 + 6) / 2
    assert ulysses_elements(LATENT, 4) == heads * (12 + 12 + 6 + 6)
    assert ring_elements(LATENT, 2, 4) == heads / 2 * (12 + 6) * 3 / 4


def attends(first, second, causal, window):
    if causal:
        return second <= first and (window is None or first - second < window)
    return window is None or first // window == second // window


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 3, 8, 20])
@pytest.mark.parametrize("length", [0, 1, 7, 16])
def test_pairs_are_those_of_the_mask(length, window, causal):
    pairs = [attends(i, j, causal, window) for i in range(length) for j in range(length)]
    assert attended_pairs(length, causal, window) == sum(pairs)


def test_attention_without_a_window_tends_to_the_squared_term():
    squared, _ = layer_flops(DECODER)
    assert attention_flops(DECODER, 0, 10_000) == pytest.approx(squared * 10_000**2, rel=1e-3)
    assert attention_flops(VIT, 0, 100) == layer_flops(VIT)[0] * 100**2
    alternating = with_fields(DECODER, window=128, full_every=2)
    assert attention_flops(alternating, 1, 5000) == attention_flops(DECODER, 1, 5000)
    assert attention_flops(alternating, 0, 128) == attention_flops(DECODER, 0, 128)
    assert attention_flops(alternating, 0, 5000) < attention_flops(DECODER, 0, 5000) / 15


def test_an_audio_token_is_two_frames_and_a_share_of_an_output_token():
    audio = Audio(layers=2, hidden=64, heads=4, ffn=128, mels=10, pool=2, out=32)
    assert embedding_head_flops(audio) == 2 * (2 * 3 * 10 * 64 + 3 * 64 * 64 + 64 * 32 / 2)
    assert layer_flops(audio)[0] == 2 * 2 * 64
