"""Checks the answers of back ends: values are rounded, evaluated in the program again, repaired or rejected.

Integer variables are rounded to integers. If that violates a row, or the continuous values were approximate, these are
solved for again. What still violates a bound by more than `TOLERANCE` is no solution.
"""

from math import inf

import numpy as np

from planner.programs.program import Floats, Program
from planner.programs.solver_answer import Solution, SolverAnswer, Status

TOLERANCE = 1e-6  # of a bound, relative beyond 1: what the floating-point solvers promise
REPAIR_FROM = 1e-9  # a smaller violation is not repaired
INTEGRALITY = 1e-4  # how far from an integer a solver may leave an integer variable
GAP = 1e-6  # objective and bound closer than this are equal, relative beyond 1


def checked_solution(
    program: Program, answer: SolverAnswer, hint: Floats | None, seconds: float, solver: str
) -> Solution:
    """The best feasible point among the answer and the hint, with the best bound that is not refuted."""
    candidates = [(answer.values, answer.approximate), (hint, False)]
    checked = [repair(program, x, approximate) for x, approximate in candidates if x is not None]
    feasible = [x for x in checked if x is not None]
    if not feasible:
        if answer.claim == "infeasible":
            return Solution("infeasible", None, inf, inf, seconds, solver)
        if answer.claim == "unbounded":
            return Solution("unbounded", None, -inf, -inf, seconds, solver)
        return Solution("unknown", None, inf, max(answer.bound, program.box_bound()), seconds, solver)
    values = min(feasible, key=program.objective)
    objective = program.objective(values)
    if answer.claim == "unbounded":
        return Solution("unbounded", None, -inf, -inf, seconds, solver)
    slack = GAP * max(1.0, abs(objective))
    # A bound above the cost of a checked point is refuted by it.
    claimed = answer.bound if answer.claim == "searched" and answer.bound <= objective + slack else -inf
    bound = min(max(claimed, program.box_bound()), objective)
    status: Status = "optimal" if objective - bound <= slack else "feasible"
    return Solution(status, values, objective, bound, seconds, solver)


def repair(program: Program, x: Floats, approximate: bool = False) -> Floats | None:
    """`x` with exact integers and within bounds, its continuous part solved again if needed; None if infeasible."""
    integral = np.where(program.integer, np.rint(x), x)
    if not np.isfinite(x).all() or np.abs(integral - x).max(initial=0.0) > INTEGRALITY:
        return None
    rounded = np.clip(integral, program.lower, program.upper)
    violation = program.violation(rounded)
    if not program.integer.all() and (approximate or violation > REPAIR_FROM):
        from planner.programs.completion import ContinuousCompletion

        completed = ContinuousCompletion(program).solve(rounded[program.integer]).values
        if completed is not None and program.violation(completed) <= min(TOLERANCE, max(violation, REPAIR_FROM)):
            return completed
    return rounded if violation <= TOLERANCE else None
