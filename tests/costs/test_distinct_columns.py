"""Distinct values of columns: counted or sorted, the same; and formulas over them as over all."""

from dataclasses import replace

import numpy as np
import pytest

from planner.costs.distinct_columns import KEYS_PER_LAYOUT, distinct_values, on_distinct
from planner.costs.layout_columns import LayoutColumns

MANY = 500


@pytest.mark.parametrize("largest", [1, 3, 40, MANY * KEYS_PER_LAYOUT, 10**6])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_places_are_those_of_sorted_values(largest, width):
    """Small keys are counted in a table, large ones sorted: either gives what numpy's unique rows do."""
    columns = np.random.default_rng(largest + width).integers(0, largest + 1, (width, MANY)).astype(float)
    first, place = distinct_values([*columns])
    _, expected_first, expected_place = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    assert (first == expected_first).all() and (place == expected_place.ravel()).all()


@pytest.mark.parametrize("scale", [0.1, -1.0])
def test_values_need_be_no_whole_numbers(scale):
    column = np.random.default_rng(0).integers(0, 9, MANY) * scale
    first, place = distinct_values([column])
    assert (column[first][place] == column).all() and first.size == np.unique(column).size


def test_a_formula_over_distinct_layouts_is_the_formula_over_all():
    random = np.random.default_rng(0)
    at = LayoutColumns(ranks=64, seq=4096, batch=64, tp=random.choice([1, 2, 4], MANY), pp=random.choice([1, 2], MANY))

    def formula(some):
        return {"both": (some.tp * 10 + some.pp, 7.0)}

    for _ in range(2):  # the second time places are known
        found, constant = on_distinct(at, ("tp", "pp"), formula)["both"]
        assert (found == at.tp * 10 + at.pp).all() and constant == 7.0
    other = replace(at, tp=at.tp * 2)  # of which nothing is known, though it shares what was known
    assert (on_distinct(other, ("tp", "pp"), formula)["both"][0] == other.tp * 10 + at.pp).all()


def times_inputs(some, factor):
    return (some.tp * factor, some.rank_order, some.tp.size)


def test_what_is_remembered_is_of_the_same_layouts_and_inputs():
    """Only fields that are named count among numbers; all others, and every input, tell results apart."""
    random = np.random.default_rng(0)
    at = LayoutColumns(ranks=64, seq=4096, batch=64, tp=random.choice([1, 2, 4], MANY), pp=random.choice([1, 2], MANY))
    whole, _, count = on_distinct(at, ("tp",), times_inputs, 3.0)
    assert (whole == 3.0 * at.tp).all() and count == 3
    for other, factor in (
        (replace(at, pp=at.pp * 2, alike={}), 3.0),  # remembered
        (replace(at, tp=at.tp * 2, alike={}), 3.0),
        (replace(at, rank_order="pp-tp-cp-dp-replica"), 3.0),
        (at, 5.0),
    ):
        found, order, _ = on_distinct(other, ("tp",), times_inputs, factor)
        assert (found == factor * other.tp).all() and order == other.rank_order
