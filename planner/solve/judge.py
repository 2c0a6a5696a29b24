"""No solver is trusted: its values are rounded, put into the program again, repaired or refused.

Whole variables are rounded to exactly whole numbers; if that moves a row, or the continuous values were coarse, those
are solved for again around them. What still misses a bound by more than `TOLERANCE` is no solution.
"""

from math import inf

import numpy as np

from planner.solve.answer import Answer, Solution, Status
from planner.solve.program import Floats, Program

TOLERANCE = 1e-6  # of a bound, relative beyond 1: what the floating-point solvers promise
EXACT = 1e-9  # closer than this, nothing is worth repairing
WHOLE = 1e-4  # how far from whole a solver may leave a whole variable
GAP = 1e-6  # objective and bound meet within this, relative beyond 1


def conclude(program: Program, answer: Answer, hint: Floats | None, seconds: float, solver: str) -> Solution:
    """The best legal point among the answer's and the hint, with the best bound that can be believed."""
    offered = [(answer.values, answer.coarse), (hint, False)]
    found = [repaired(program, x, coarse) for x, coarse in offered if x is not None]
    legal = [x for x in found if x is not None]
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


def repaired(program: Program, x: Floats, coarse: bool = False) -> Floats | None:
    """`x` made exactly whole and within bounds, with the continuous part solved again if need be; None if illegal."""
    whole = np.where(program.integer, np.rint(x), x)
    if not np.isfinite(x).all() or np.abs(whole - x).max(initial=0.0) > WHOLE:
        return None
    rounded = np.clip(whole, program.lower, program.upper)
    violation = program.violation(rounded)
    if not program.integer.all() and (coarse or violation > EXACT):
        from planner.solve.completion import Completion

        completed = Completion(program).best(rounded[program.integer]).values
        if completed is not None and program.violation(completed) <= min(TOLERANCE, max(violation, EXACT)):
            return completed
    return rounded if violation <= TOLERANCE else None
