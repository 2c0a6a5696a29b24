"""Scaled frequencies are those that transformers computes for the same rule; between the limits of a rule they rise."""

import warnings
from importlib import import_module

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from planner.hf.rope import scaling_keys
from planner.models.kernels.rotary_positions import (
    rotary_frequencies,
    rotary_table,
    rotated_scale,
    section_axes,
    sectioned_table,
)
from planner.specs.base import with_fields
from planner.specs.layers.rope_scaling import LinearScaling, Llama3Scaling, YarnScaling
from tests.examples import examples

CPU = torch.device("cpu")
FACTORS, LENGTHS = st.floats(1, 64), st.integers(16, 100_000)
SCALINGS = (
    st.builds(LinearScaling, factor=FACTORS)
    | st.builds(Llama3Scaling, factor=FACTORS, low=st.floats(0.5, 2), high=st.floats(2.5, 9), original=LENGTHS)
    | st.builds(
        YarnScaling,
        factor=FACTORS,
        fast=st.floats(8, 64),
        slow=st.floats(0.5, 4),
        original=LENGTHS,
        attention=st.none() | st.floats(0.5, 2),
        truncate=st.booleans(),
    )
)


@examples(60)
@given(SCALINGS, st.sampled_from([8, 32, 64, 128]), st.sampled_from([1e3, 1e4, 5e5]))
def test_they_are_those_of_transformers(scaling, width, base):
    rope = import_module("transformers.modeling_rope_utils")
    config = llama_config(scaling, width, base)
    rule = scaling_keys(scaling)["rope_scaling"]["rope_type"]
    want, scale = rope.ROPE_INIT_FUNCTIONS[rule](config, CPU)  # in float32
    torch.testing.assert_close(rotary_frequencies(width, base, scaling, CPU).float(), want, rtol=1e-5, atol=1e-9)
    assert rotated_scale(scaling) == pytest.approx(scale, rel=1e-12)


def llama_config(scaling, width, base):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    keys = scaling_keys(scaling)["rope_scaling"] | {"rope_theta": base}
    return transformers.LlamaConfig(
        hidden_size=2 * width, num_attention_heads=2, max_position_embeddings=200_000, rope_parameters=keys
    )


@examples(60)
@given(SCALINGS, st.sampled_from([8, 64]), st.sampled_from([1e3, 5e5]))
def test_they_lie_between_the_plain_ones_and_those_divided(scaling, width, base):
    plain, scaled = rotary_frequencies(width, base, None, CPU), rotary_frequencies(width, base, scaling, CPU)
    assert (scaled <= plain * (1 + 1e-12)).all() and (scaled >= plain / scaling.factor * (1 - 1e-12)).all()
    same = rotary_frequencies(width, base, with_fields(scaling, factor=1.0), CPU)
    torch.testing.assert_close(same, plain, rtol=1e-12, atol=0)


def test_sections_turn_as_one_axis_does_where_places_are_equal():
    scaling = YarnScaling(factor=4, original=64)
    places = torch.arange(9)[:, None].expand(-1, 3)
    for one, other in zip(
        sectioned_table(places, section_axes((1, 1, 2), False), torch.float64, 50.0, scaling),
        rotary_table(torch.arange(9), 8, torch.float64, 50.0, scaling),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-14, atol=1e-14)
