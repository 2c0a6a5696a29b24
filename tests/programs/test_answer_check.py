"""A solver may say what it likes: only checked points and unrefuted bounds come through."""

from math import inf

import numpy as np
import pytest

from planner.programs import Program, ProgramBuilder
from planner.programs.answer_check import checked_solution
from planner.programs.solver_answer import SolverAnswer


def program() -> Program:
    """minimise -x - 2 y, x whole, x + y <= 3.5, both in 0..3: best at x = 0, y = 3 (cost -6.5 needs x = 0.5)."""
    b = ProgramBuilder()
    x, y = b.variable(0, 3, integer=True, cost=-1), b.variable(0, 3, cost=-2)
    b.row({x: 1, y: 1}, upper=3.5)
    return b.build()


def judged(answer: SolverAnswer, hint=None):
    return checked_solution(program(), answer, None if hint is None else np.array(hint, dtype=float), 0.0, "liar")


def test_honest_answer():
    solution = judged(SolverAnswer(values=np.array([0.0, 3.0]), bound=-6.0))
    assert (solution.status, solution.objective, solution.bound) == ("optimal", -6, -6)


def test_illegal_values_are_no_solution():
    assert judged(SolverAnswer(values=np.array([0.5, 3.0]), bound=-6.5)).status == "unknown"
    assert judged(SolverAnswer(values=np.array([np.nan, 3.0]), bound=-6.5)).status == "unknown"


def test_almost_whole_values_are_rounded_and_the_rest_solved_again():
    solution = judged(SolverAnswer(values=np.array([0.99999, 2.50001]), bound=-7.0))
    assert solution.values.tolist() == [1.0, 2.5]
    assert solution.status == "feasible"


def test_coarse_values_are_solved_again():
    assert judged(SolverAnswer(values=np.array([1.0, 2.49]), bound=-6.0, approximate=True)).objective == -6


def test_a_bound_refuted_by_a_point_is_dropped():
    solution = judged(SolverAnswer(values=np.array([0.0, 3.0]), bound=-5.0))
    assert (solution.status, solution.bound) == ("feasible", -9)  # what the variables' own bounds allow


def test_a_bound_is_never_worse_than_the_box():
    assert judged(SolverAnswer(values=np.array([0.0, 3.0]))).bound == -9
    assert judged(SolverAnswer()).bound == -9


@pytest.mark.parametrize(
    "answer", [SolverAnswer(), SolverAnswer("infeasible"), SolverAnswer(values=np.array([2.0, 1.0]), bound=-7.0)]
)
def test_a_legal_hint_is_a_candidate(answer):
    solution = judged(answer, hint=[1, 2.5])
    assert (solution.status, solution.objective) == ("feasible", -6)


def test_a_hint_is_completed_around_its_whole_part():
    assert judged(SolverAnswer(), hint=[3, 3]).values.tolist() == [3, 0.5]


def test_an_illegal_hint_is_no_candidate():
    assert judged(SolverAnswer("infeasible"), hint=[0.5, 3]).status == "infeasible"


def test_claims_without_a_point():
    assert (judged(SolverAnswer("infeasible")).objective, judged(SolverAnswer("infeasible")).bound) == (inf, inf)
    assert (judged(SolverAnswer("unbounded")).objective, judged(SolverAnswer("unbounded")).bound) == (-inf, -inf)
    assert (judged(SolverAnswer(bound=-7.0)).status, judged(SolverAnswer(bound=-7.0)).bound) == ("unknown", -7)
