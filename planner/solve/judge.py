"""No solver is trusted: its values are rounded, put into the program again, repaired or refused.

Whole variables are rounded to exactly whole numbers. If that breaks a row, the continuous variables are solved for
again around them. What still misses a bound by more than `TOLERANCE` is no solution.
"""

from math import inf

import numpy as np

from planner.solve.answer import Answer, Solution, Status
from planner.solve.program import Floats, Program

TOLERANCE = 1e-6  # of a bound, relative beyond 1: what the floating-point solvers promise
GAP = 1e-6  # objective and bound meet within this, relative beyond 1


def conclude(program: Program, answer: Answer, hint: Floats | None, seconds: float, solver: str) -> Solution:
    """The best legal point among the answer's and the hint, with the best bound that can be believed."""
    legal = [x for x in (repaired(program, x) for x in (answer.values, hint) if x is not None) if x is not None]
    if not legal:
        if answer.claim == "infeasible":
            return Solution("infeasible", None, inf, inf, seconds, solver)
        if answer.claim == "unbounded":
            return Solution("unbounded", None, -inf, -inf, seconds, solver)
        return Solution("unknown", None, inf, max(answer.bound, program.box_bound()), seconds, solver)
    values = min(legal, key=program.objective)
    objective = program.objective(values)
    if answer.claim == "unbounded":
        return Solution("unbounded", None, -inf, -inf, seconds, solver)
    slack = GAP * max(1.0, abs(objective))
    # A bound above a point that was checked is refuted by it.
    claimed = answer.bound if answer.claim == "searched" and answer.bound <= objective + slack else -inf
    bound = min(max(claimed, program.box_bound()), objective)
    status: Status = "optimal" if objective - bound <= slack else "feasible"
    return Solution(status, values, objective, bound, seconds, solver)


def repaired(program: Program, x: Floats) -> Floats | None:
    """`x` made exactly whole and within bounds, with the continuous part solved again if need be; None if illegal."""
    rounded = np.clip(np.where(program.integer, np.rint(x), x), program.lower, program.upper)
    if not np.isfinite(rounded).all() or np.abs(rounded - x)[program.integer].max(initial=0.0) > 1e-4:
        return None
    if program.violation(rounded) <= TOLERANCE:
        return rounded
    if program.integer.all():
        return None
    from planner.solve.completion import Completion

    completed = Completion(program).best(rounded[program.integer]).values
    return completed if completed is not None and program.violation(completed) <= TOLERANCE else None
