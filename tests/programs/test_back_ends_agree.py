"""Every back end gives what brute force gives, on programs small enough for it, and refuses only what it must."""

from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.programs import BACKENDS, Program, ProgramBuilder, Solution, solve
from tests.examples import examples

IN_PROCESS = ["mathopt-highs", "mathopt-scip", "cp-sat"]
OTHERS = [*IN_PROCESS, "cbc"]


def knapsack() -> Program:
    b = ProgramBuilder()
    items = [b.variable(0, 1, integer=True, cost=-worth) for worth in (10, 13, 7, 8, 2)]
    b.row(dict(zip(items, (5, 6, 3, 4, 1), strict=True)), upper=10)
    return b.build()


def assignment() -> Program:
    cost = [[4, 1, 3], [2, 0, 5], [3, 2, 2]]
    b = ProgramBuilder()
    x = {(i, j): b.variable(0, 1, integer=True, cost=cost[i][j]) for i, j in product(range(3), repeat=2)}
    for i in range(3):
        b.row({x[i, j]: 1 for j in range(3)}, 1, 1)
        b.row({x[j, i]: 1 for j in range(3)}, 1, 1)
    return b.build()


def makespan() -> Program:
    """Jobs with times that no grid carries exactly, on two machines."""
    times = [0.731, 0.417, 0.523, 0.298, 1 / 3, 0.1]
    b = ProgramBuilder()
    end = b.variable(0, sum(times), cost=1.0, name="makespan")
    on = [[b.variable(0, 1, integer=True) for _ in range(2)] for _ in times]
    for job in on:
        b.row({machine: 1 for machine in job}, 1, 1)
    for machine in range(2):
        b.row({end: 1.0, **{on[job][machine]: -time for job, time in enumerate(times)}}, lower=0)
    return b.build()


def linear() -> Program:
    b = ProgramBuilder()
    x, y, z = (b.variable(0, 8, cost=-worth) for worth in (1.37, 2.11, 0.3))
    b.row({x: 1.7, y: 2.3, z: 0.4}, upper=9.1)
    b.row({x: 0.3, y: -2.3, z: 1.4}, 1.1, 1.1)
    return b.build()


def negative() -> Program:
    """Bounds below zero, no row at all for one variable, and a row that holds nothing."""
    b = ProgramBuilder()
    x, y = b.variable(-7, -2, integer=True, cost=2), b.variable(-3.5, 4.5, cost=-1)
    z = b.variable(-2.7, 2.7, integer=True)
    b.row({x: 1.0, y: 2.0}, -6, 1.5)
    b.row({}, -1, 1)
    b.row({z: 1.0}, lower=-inf, upper=inf)
    return b.build()


def two_sided() -> Program:
    """Rows of two variables with two sides, of which SCIP's presolve makes a wrong one."""
    b = ProgramBuilder()
    x, y, z = (b.variable(*bounds, integer=True, cost=cost) for *bounds, cost in ((0, 1, -2), (-1, 2, 1), (-3, -2, 1)))
    b.row({x: 2, z: 2}, -4, -1.9)
    b.row({x: -3, y: 0.6}, -2, 0.1)
    return b.build()


def split() -> Program:
    """No whole number fits."""
    b = ProgramBuilder()
    x, y = b.variable(0, 5, integer=True), b.variable(0, 5, integer=True)
    b.row({x: 2, y: 4}, 5, 5)
    return b.build()


def overfull() -> Program:
    b = ProgramBuilder()
    x, y = b.variable(0, 5, cost=-1), b.variable(0, 5)
    b.row({x: 1, y: 1}, lower=10.5)
    return b.build()


def gap_between_bounds() -> Program:
    b = ProgramBuilder()
    b.variable(0.2, 0.8, integer=True)
    return b.build()


def test_named_programs_have_their_known_optimum():
    assert solve(knapsack(), "brute").objective == -22
    assert solve(assignment(), "brute").objective == 5
    assert solve(linear(), "brute").objective == pytest.approx(-7.968840579710146)
    assert solve(negative(), "brute").objective == pytest.approx(-18.25)


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("make", [knapsack, assignment, makespan, linear, negative, two_sided])
@pytest.mark.every(6)
def test_back_ends_agree(make, backend):
    agree(make(), backend)


@pytest.mark.parametrize("backend", [*OTHERS, "brute"])
@pytest.mark.parametrize("make", [split, overfull, gap_between_bounds])
def test_infeasible(make, backend):
    solution = solve(make(), backend)
    assert (solution.status, solution.values, solution.objective) == ("infeasible", None, inf)


@pytest.mark.parametrize("backend", ["mathopt-highs", "mathopt-scip", "cbc", "brute"])
@pytest.mark.parametrize("legal", [True, False])
@pytest.mark.every(2)
def test_unbounded_is_told_from_infeasible(backend, legal):
    """A ray that pays, beside a row that can be met or not: presolvers call both `infeasible or unbounded`."""
    b = ProgramBuilder()
    b.variable(0, inf, cost=-1)
    y, z = b.variable(0, 1, integer=True), b.variable(0, 1, integer=True)
    b.row({y: 2, z: 2}, *((2, 2) if legal else (1, 1)))
    solution = solve(b.build(), backend)
    assert solution.status == ("unbounded" if legal else "infeasible")
    assert solution.objective == solution.bound == (-inf if legal else inf)


@pytest.mark.parametrize("backend", ["mathopt-highs", "mathopt-scip", "cbc"])
def test_open_whole_variables(backend):
    """No upper bound given is no upper bound: not 1, as in some readers of MPS."""
    b = ProgramBuilder()
    x, y = b.variable(integer=True, cost=-2), b.variable(-inf, inf, integer=True, cost=3)
    b.row({x: 1, y: -2}, upper=7)
    b.row({x: 1, y: 1}, upper=30.5)
    b.row({y: 1}, lower=-12.5)
    solution = solve(b.build(), backend)
    # the best corner of x <= 7 + 2 y and x <= 30 - y with y >= -3: cost -14 - y, so y as large as the two rows allow
    assert solution.status == "optimal"
    assert solution.objective == min(
        -2 * x + 3 * y for y in range(-12, 40) for x in range(60) if x <= 7 + 2 * y and x + y <= 30
    )


@pytest.mark.parametrize("backend", [*OTHERS, "brute"])
def test_no_variables_or_no_rows(backend):
    assert solve(ProgramBuilder().build(), "mathopt-highs").status == "optimal"
    b = ProgramBuilder()
    b.variable(0, 3, integer=True, cost=-2)
    assert solve(b.build(), backend).objective == -6


numbers = st.one_of(
    st.integers(-6, 6).map(float),
    st.integers(-60, 60).map(lambda tenths: tenths / 10),
    st.floats(-5, 5, allow_subnormal=False).filter(lambda value: value == 0 or abs(value) > 1e-3),
)


@st.composite
def programs(draw) -> Program:
    """Up to four whole variables and three continuous ones, these sometimes open; rows of every kind."""
    b = ProgramBuilder()
    point = {}  # within the bounds: most rows are laid around it, so that most programs have something legal
    for whole in [True] * draw(st.integers(0, 4)) + [False] * draw(st.integers(0, 3)):
        low = draw(st.integers(-4, 3)) if whole else draw(numbers)
        high = low + draw(st.integers(0, 4)) if whole else low + draw(st.sampled_from([0.0, 0.7, 2.0, 5.0, inf]))
        column = b.variable(low, high, integer=whole, cost=draw(numbers))
        point[column] = min(high, low + draw(st.integers(0, 2)))
    for _ in range(draw(st.integers(0, 4))):
        terms = {column: draw(numbers) for column in point if draw(st.booleans())}
        met = sum(weight * point[column] for column, weight in terms.items())
        around = draw(numbers) if draw(st.integers(0, 5)) == 0 else met
        below, above = draw(st.sampled_from([(0.0, 0.0), (0.5, 3.0), (0.0, inf), (inf, 0.0), (inf, 1.3), (2.0, 0.1)]))
        b.row(terms, around - below, around + above)
    return b.build()


FEW = dict(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.mark.slow
@pytest.mark.parametrize("backend", IN_PROCESS)
@examples(150, **FEW)
@given(program=programs())
def test_back_ends_agree_on_any_program(backend, program):
    agree(program, backend)


@pytest.mark.slow
@examples(15, **FEW)
@given(program=programs())
def test_cbc_agrees_on_any_program(program):
    agree(program, "cbc")


def agree(program: Program, backend: str) -> None:
    truth = solve(program, "brute")
    try:
        solution = solve(program, backend)
    except InputError:
        assert backend == "cp-sat"  # refused: its own tests say what
        return
    compare(program, truth, solution)


def compare(program: Program, truth: Solution, solution: Solution) -> None:
    if truth.status != "optimal":
        assert solution.status == truth.status
        return
    close = 1e-6 * max(1.0, abs(truth.objective))
    assert solution.status == "optimal" or (solution.solver == "cp-sat" and solution.status == "feasible")
    assert abs(solution.objective - truth.objective) <= close
    assert solution.bound <= truth.objective + close
    assert solution.bound >= truth.objective - 20 * close
    assert program.violation(solution.values) <= 1e-6
    assert solution.objective == program.objective(solution.values)
    assert (solution.values[program.integer] == np.rint(solution.values[program.integer])).all()


def test_every_back_end_is_tested_here():
    assert set(BACKENDS) == {*OTHERS, "brute"}
