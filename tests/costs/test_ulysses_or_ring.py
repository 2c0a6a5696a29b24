"""Degrees of groups: those that the heads allow, and how one factors into Ulysses and ring."""

import pytest

from planner.costs.ulysses_or_ring import allowed_degrees, split_degree, ulysses_degree
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.layers import Decoder
from planner.specs.layers.components import StateSpace
from planner.specs.model import Model


@pytest.mark.parametrize("name", library.shipped_names(Model))
def test_degrees_are_split_into_heads_first_and_a_ring_for_the_rest(name):
    model, _ = library.read_named(name, Model)
    for module in model.modules.values():
        for degree in range(1, 65):
            parts = split_degree(module, degree)
            product = 1
            for size in parts.values():
                product *= size
            assert product == degree
            assert module.heads % parts.get("ulysses", 1) == 0
            assert all(degree % d or module.heads % d for d in range(parts.get("ulysses", 1) + 1, degree + 1))


def test_without_wishes_degrees_are_the_powers_of_two_that_the_heads_allow():
    module = Decoder(layers=1, hidden=96, heads=12, kv_heads=6, ffn=8, vocab=8)
    assert allowed_degrees(module, 64, ()) == (1, 2, 4)
    assert allowed_degrees(module, 2, ()) == (1, 2)
    assert allowed_degrees(module, 8, (16, 3, 8, 3)) == (3, 8)
    hybrid = with_fields(module, state_space=StateSpace(heads=1, head_dim=8, state=8), pattern="M " * module.layers)
    assert allowed_degrees(hybrid, 64, ()) == (1,) == allowed_degrees(hybrid, 64, (1, 2))
    assert (ulysses_degree(module, 8), split_degree(module, 8)) == (4, {"ulysses": 4, "ring": 2})
    assert split_degree(module, 1) == {"ulysses": 1}
