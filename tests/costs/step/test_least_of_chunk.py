"""What a chunk's replicas exchange at least: over every choice of as many layers as it has, by brute force."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.layout_columns import LayoutColumns
from planner.costs.step.least_exchange import least_of_chunk
from planner.specs import library
from planner.specs.layers import kind_counts
from planner.specs.model import Model

MIXED = library.read_named("deepseek-v2-lite", Model)[0].modules["llm"]
COUNTS = [*kind_counts(MIXED).values()]


@given(st.lists(st.floats(0.0, 9.0), min_size=len(COUNTS), max_size=len(COUNTS)), st.sampled_from([1, 2, 4, 9]))
def test_it_is_the_least_of_all_compositions(each, pp):
    layers = max(1, MIXED.layers // pp)
    made = (counts for counts in product(*(range(count + 1) for count in COUNTS)) if sum(counts) == layers)
    least = min(sum(count * own for count, own in zip(counts, each, strict=True)) for counts in made)
    at = LayoutColumns(ranks=8, seq=1.0, batch=1.0, pp=np.array([pp, 1]))
    found = least_of_chunk(MIXED, at, each)
    assert found[0] == pytest.approx(least)
    assert found[1] == pytest.approx(sum(count * own for count, own in zip(COUNTS, each, strict=True)))


def test_the_module_has_kinds():
    assert len(COUNTS) > 1
