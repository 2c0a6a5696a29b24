"""Every assignment of the integer variables with its best continuous completion: the reference for other back ends.

Exact and slow on purpose: no bounding, no branching. It refuses programs that it could not finish.
"""

from math import inf, prod

import numpy as np

from planner.errors import InputError
from planner.programs.completion import ContinuousCompletion
from planner.programs.program import Bools, Floats, Program
from planner.programs.solver_answer import SolverAnswer, SolverLimits

MAX_ASSIGNMENTS = 1_000_000  # assignments
SLACK = 1e-9  # of a constraint, relative beyond 1


def solve(program: Program, limits: SolverLimits, hint: Floats | None) -> SolverAnswer:
    """The optimum by enumeration. Raises InputError where there are too many assignments."""
    assignments = _assignments(program)
    assignments = assignments[_keeps_integer_rows(program, assignments)]
    if not len(assignments):
        return SolverAnswer("infeasible")
    cost = assignments @ program.cost[program.integer]
    if program.integer.all():
        best = int(np.argmin(cost))
        return SolverAnswer(values=assignments[best], bound=float(cost[best]))
    return _best_completion(program, assignments, cost)


def _assignments(program: Program) -> Floats:
    """(assignments, integer variables), the last variable varying fastest."""
    lower, upper = program.lower[program.integer], program.upper[program.integer]
    if not np.isfinite(upper - lower).all() or prod(int(top) + 1 for top in upper - lower) > MAX_ASSIGNMENTS:
        raise InputError(
            f"brute force takes at most {MAX_ASSIGNMENTS} assignments of integer variables, and there are more",
            fix="narrow their bounds, or choose another back end",
        )
    axes = [np.arange(low, high + 1) for low, high in zip(lower, upper, strict=True)]
    grid = np.meshgrid(*axes, indexing="ij") if axes else []
    return np.stack([axis.ravel() for axis in grid], axis=1) if grid else np.zeros((1, 0))


def _keeps_integer_rows(program: Program, assignments: Floats) -> Bools:
    """(assignments,) whether each keeps all rows without continuous variables."""
    feasible = np.ones(len(assignments), dtype=np.bool_)
    place = np.cumsum(program.integer) - 1
    for row in range(program.rows):
        entries = slice(program.indptr[row], program.indptr[row + 1])
        columns = program.indices[entries]
        if program.integer[columns].all():
            activity = assignments[:, place[columns]] @ program.values[entries]
            low, high = program.row_lower[row], program.row_upper[row]
            feasible &= (activity >= low - SLACK * max(1.0, abs(low))) & (
                activity <= high + SLACK * max(1.0, abs(high))
            )
    return feasible


def _best_completion(program: Program, assignments: Floats, cost: Floats) -> SolverAnswer:
    """The cheapest assignment with its continuous completion; `cost`: (assignments,) cost of the integer part."""
    completion = ContinuousCompletion(program)
    best, objective = SolverAnswer("infeasible"), inf
    for choice in np.argsort(cost, kind="stable"):
        if cost[choice] + completion.cost_bound >= objective:
            break  # the assignments that follow cost at least as much
        answer = completion.solve(assignments[choice])
        if answer.claim == "unbounded":
            return answer
        if answer.values is not None and answer.bound < objective:
            best, objective = answer, answer.bound
    return best
