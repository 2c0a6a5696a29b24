"""CP-SAT's whole-number program is never tighter than the program, and exact where it says so."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.programs import ProgramBuilder, solve
from planner.programs.integer_grid import integer_limits, integer_row, make_grid


def line(program, grid, row=0):
    entries = slice(program.indptr[row], program.indptr[row + 1])
    return integer_row(program.indices[entries], program.values[entries], grid, ~program.integer, "row")


@st.composite
def rows_with_points(draw):
    """A row through a point of mixed variables, with coefficients of any size, and that point."""
    b = ProgramBuilder()
    point, terms = [], {}
    for _ in range(draw(st.integers(1, 5))):
        whole = draw(st.booleans())
        low = draw(st.integers(-50, 50) if whole else st.floats(-50, 50))
        width = draw(st.integers(0, 30) if whole else st.floats(0, 30))
        share = draw(st.floats(0, 1))
        x = b.variable(low, low + width, integer=whole)
        terms[x] = draw(st.one_of(st.integers(-9, 9), st.floats(-1e3, 1e3), st.floats(-1e-3, 1e-3)))
        point.append(low + (round(share * width) if whole else share * width))
    point = np.minimum(point, np.array(b.build().upper))
    activity = sum(terms[x] * point[x] for x in terms)
    b.row(terms, *draw(st.sampled_from([(activity, activity), (activity, inf), (-inf, activity)])))
    return b.build(), point


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True)
@given(rows_with_points())
def test_a_legal_point_moved_to_the_grid_is_legal_there(drawn):
    program, point = drawn
    grid = make_grid(program)
    whole = line(program, grid)
    shift = program.row_activities(grid.origin)[0]
    least, most = integer_limits(whole, shift, program.row_lower[0], program.row_upper[0])
    k = grid.nearest(point)
    assert ((k >= 0) & (k <= grid.top) & (k == np.rint(k))).all()
    activity = sum(int(w) * int(k[j]) for w, j in zip(whole.weights, whole.variables, strict=True))
    assert least <= activity <= most


def test_integers_and_decimals_are_carried_without_error():
    b = ProgramBuilder()
    x, y, z = (b.variable(-3, 40, integer=True) for _ in range(3))
    b.row({x: 2, y: -7, z: 1})
    b.row({x: 0.25, y: -0.1, z: 3.14159})
    program = b.build()
    grid = make_grid(program)
    assert (line(program, grid).weights.tolist(), line(program, grid).scale) == ([2, -7, 1], 1.0)
    assert line(program, grid).error == 0.0
    assert line(program, grid, 1).weights.tolist() == [25_000, -10_000, 314_159]
    assert line(program, grid, 1).error < 1e-6


def test_grid_is_a_power_of_two_of_the_range():
    b = ProgramBuilder()
    b.variable(0, 10)
    b.variable(0, 10, integer=True)
    b.variable(3.5, 3.5)
    assert make_grid(b.build()).step[:2].tolist() == [2.0**-20, 1.0]
    assert make_grid(b.build()).top[1:].tolist() == [10, 0]


def test_an_open_variable_is_refused_by_name():
    b = ProgramBuilder()
    b.variable(0, 1)
    b.variable(0, name="makespan", cost=1.0)
    with pytest.raises(InputError, match="`makespan` lacks one"):
        solve(b.build(), "cp-sat")


def test_a_row_of_too_many_magnitudes_is_refused_by_name():
    b = ProgramBuilder()
    x, y = b.variable(0, 1e15, integer=True), b.variable(0, 1, integer=True)
    b.row({x: 1 / 3, y: 1e-7}, upper=5, name="capacity")
    with pytest.raises(InputError, match="`capacity`"):
        solve(b.build(), "cp-sat")


def test_a_row_no_whole_number_meets_is_infeasible():
    b = ProgramBuilder()
    x = b.variable(0, 9, integer=True)
    b.row({x: 3}, 4, 5)
    assert solve(b.build(), "cp-sat").status == "infeasible"


def test_bound_allows_for_the_grid():
    """The best continuous value lies between grid points: the bound is below it, the objective exactly on it."""
    b = ProgramBuilder()
    x = b.variable(0, 1, cost=-1)
    b.row({x: 3}, upper=1)
    solution = solve(b.build(), "cp-sat")
    assert solution.objective == pytest.approx(-1 / 3, abs=1e-12)
    assert -1 / 3 - 2.0**-23 <= solution.bound <= -1 / 3


def test_a_fine_grid_is_not_crept_along():
    """Each unit of the grid is a better solution: without halving the range there would be millions of them."""
    b = ProgramBuilder()
    x, y = b.variable(0, 10, integer=True, cost=-3), b.variable(0, 10, cost=-2)
    b.row({x: 2, y: 1}, upper=12.5)
    b.row({x: 1, y: 3}, upper=15)
    solution = solve(b.build(), "cp-sat")
    assert solution.objective == -20
    assert solution.seconds < 60


def test_shifted_bounds_do_not_matter():
    b = ProgramBuilder()
    x, y = b.variable(0, 3, integer=True, cost=-1.5), b.variable(0, 3, integer=True, cost=-1)
    b.row({x: 1, y: 1}, upper=4)
    program = b.build()
    moved = replace(program, lower=program.lower - 7, upper=program.upper - 7, row_upper=program.row_upper - 14)
    assert solve(moved, "cp-sat").objective == solve(program, "cp-sat").objective + 7 * 2.5
