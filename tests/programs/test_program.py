"""The arrays say what was written, and a program knows what is legal in it."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from planner.programs import Program, ProgramBuilder


def small() -> Program:
    b = ProgramBuilder()
    x = b.variable(0, 4, integer=True, cost=3.0, name="x")
    y = b.variable(-1, cost=-2.0)
    z = b.variable()
    b.row({z: 2.5, x: 1.0}, upper=6, name="cap")
    b.row({})
    b.row({y: -1.0, x: 0.0}, 0, 1)
    return b.build()


def test_builder_writes_rows_in_order_without_zeros():
    program = small()
    assert program.indptr.tolist() == [0, 2, 2, 3]
    assert program.indices.tolist() == [0, 2, 1]
    assert program.values.tolist() == [1.0, 2.5, -1.0]
    assert program.row_lower.tolist() == [-inf, -inf, 0]
    assert program.row_upper.tolist() == [6, inf, 1]
    assert program.integer.tolist() == [True, False, False]
    assert program.upper.tolist() == [4, inf, inf]
    assert [program.name(j) for j in range(3)] == ["x", "x1", "x2"]
    assert [program.row_name(i) for i in range(3)] == ["cap", "row 1", "row 2"]


def test_objective_and_activities():
    program = small()
    x = np.array([2.0, -0.5, 1.0])
    assert program.objective(x) == 7.0
    assert program.row_activities(x).tolist() == [4.5, 0.0, 0.5]


@pytest.mark.parametrize(
    ("x", "miss"),
    [
        ([2, -0.5, 1], 0),
        ([2.25, -0.5, 1], 0.25),  # not whole
        ([5, -0.5, 0.4], 0.25),  # 1 above a bound of 4
        ([4, -0.5, 2], 0.5),  # 3 above a row of 6
        ([4, 0.25, 0], 0.25),  # below a row of 0
        ([np.nan, 0, 0], inf),
    ],
)
def test_violation_is_the_worst_miss(x, miss):
    assert small().violation(np.array(x, dtype=float)) == miss


def test_box_bound_is_below_every_point():
    assert small().box_bound() == -inf
    assert replace(small(), upper=np.array([4.0, 5.0, inf])).box_bound() == -10


def test_tightened_moves_whole_bounds_only():
    program = replace(small(), lower=np.array([0.2, -1.3, 0]), upper=np.array([3.999999999999, 7.5, inf]))
    assert program.tightened().lower.tolist() == [1, -1.3, 0]
    assert program.tightened().upper.tolist() == [4, 7.5, inf]


@pytest.mark.parametrize(
    ("field", "array"),
    [
        ("lower", [0.0, 0.0]),
        ("cost", [0.0, np.nan, 0.0]),
        ("values", [1.0, inf, 1.0]),
        ("lower", [0.0, np.nan, 0.0]),
        ("lower", [0.0, inf, 0.0]),
        ("row_upper", [1.0, -inf, 0.0]),
        ("indices", [2, 0, 1]),
        ("indices", [0, 0, 1]),
        ("indices", [0, 3, 1]),
        ("indptr", [0, 2, 1, 3]),
        ("indptr", [0, 2, 2, 2]),
    ],
)
def test_malformed_arrays_are_refused(field, array):
    with pytest.raises(ValueError):
        replace(small(), **{field: np.array(array)})
