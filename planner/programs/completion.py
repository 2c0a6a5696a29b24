"""With the integer variables fixed, the best continuous ones solve a small linear program: GLOP does.

Its columns are the continuous variables and its rows those that contain one. The integer variables only shift the
bounds of these rows, so one reduction serves any number of assignments. Rows of integer variables alone are not
checked: the caller has checked them, or checks the result.
"""

from dataclasses import replace

import numpy as np
from ortools.math_opt import parameters_pb2

from planner.programs.mathopt import model_proto, solve_model
from planner.programs.program import Floats, Program
from planner.programs.solver_answer import SolverAnswer


class ContinuousCompletion:
    """The linear program of the continuous variables of a program, for any values of the integer ones."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._free = ~program.integer
        kept = self._free[program.indices]
        per_row = np.bincount(program.entry_rows()[kept], minlength=program.rows)
        self._touched = per_row > 0
        place = np.cumsum(self._free) - 1  # index of a continuous variable among the continuous ones
        self._reduced = Program(
            cost=program.cost[self._free],
            lower=program.lower[self._free],
            upper=program.upper[self._free],
            integer=np.zeros(int(self._free.sum()), dtype=np.bool_),
            indptr=np.concatenate([[0], np.cumsum(per_row[self._touched])]).astype(np.int64),
            indices=place[program.indices[kept]].astype(np.int64),
            values=program.values[kept],
            row_lower=program.row_lower[self._touched],
            row_upper=program.row_upper[self._touched],
        )
        self.cost_bound = self._reduced.box_bound()  # lower bound on the cost of the continuous part

    def solve(self, whole: Floats) -> SolverAnswer:
        """The best values of all variables, the integer ones as given; claims are about the continuous part."""
        x = np.zeros(self._program.variables)
        x[~self._free] = whole
        shift = self._program.row_activities(x)[self._touched]
        part = self._reduced
        part = replace(part, row_lower=part.row_lower - shift, row_upper=part.row_upper - shift)
        answer = _linear(part)
        if answer.claim == "unbounded" and _linear(part.without_objective()).claim != "searched":
            return SolverAnswer("infeasible")  # without an objective nothing is unbounded
        if answer.values is None:
            return answer
        x[self._free] = answer.values
        return SolverAnswer(values=x, bound=self._program.objective(x))


def _linear(program: Program) -> SolverAnswer:
    return solve_model(model_proto(program), parameters_pb2.SOLVER_TYPE_GLOP, parameters_pb2.SolveParametersProto())
