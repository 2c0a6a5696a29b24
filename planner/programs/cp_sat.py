"""CP-SAT: the program on an integer grid (`integer_grid.py`), one worker, limited by deterministic time.

It solves a program that is never tighter than the given one, so its bound, less the rounding error of the objective
row, and its proofs of infeasibility hold for the given one. Every variable needs two finite bounds; a program with an
unbounded variable is refused.
"""

from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from planner.programs.integer_grid import NOISE, IntegerGrid, IntegerRow, integer_limits, integer_row, make_grid
from planner.programs.program import Floats, Program
from planner.programs.solver_answer import SolverAnswer, SolverLimits

PROBE = 10  # conflicts of the binary search over the objective, which otherwise creeps over a fine grid unit by unit


def solve(program: Program, limits: SolverLimits, hint: Floats | None) -> SolverAnswer:
    """Solve on the grid. Raises InputError for unbounded variables, and coefficients beyond 64 bits."""
    grid = make_grid(program)
    objective = _objective(program, grid)
    model = cp_model.CpModel()
    _fill(model.proto, program, grid, objective)
    if hint is not None:
        model.proto.solution_hint.vars.extend(range(program.variables))
        model.proto.solution_hint.values.extend(grid.nearest(hint).astype(np.int64).tolist())
    solver = cp_model.CpSolver()
    _limit(solver.parameters, limits)
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return SolverAnswer("infeasible")
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"CP-SAT refused the model: {model.validate()}")
    if status == cp_model.UNKNOWN:
        return SolverAnswer()
    response = solver.response_proto
    bound = _bound(program, grid, objective, int(response.inner_objective_lower_bound))
    values = grid.values(np.array(list(response.solution), dtype=np.float64))
    return SolverAnswer(values=values, bound=bound, approximate=True)


def _objective(program: Program, grid: IntegerGrid) -> IntegerRow:
    paid = np.flatnonzero(program.cost)
    return integer_row(paid, program.cost[paid], grid, ~program.integer, "the objective")


def _bound(program: Program, grid: IntegerGrid, objective: IntegerRow, whole: int) -> float:
    """The proven integer bound as a cost, less the rounding error of the objective row."""
    shift = program.cost * grid.origin
    noise = NOISE * (float(np.abs(shift).sum()) + abs(whole) / objective.scale)
    return float(shift.sum()) + (whole - objective.error) / objective.scale - noise


def _fill(proto: Any, program: Program, grid: IntegerGrid, objective: IntegerRow) -> None:
    for top in grid.top.astype(np.int64).tolist():
        proto.variables.add().domain.extend([0, top])
    shifts = program.row_activities(grid.origin)
    for row in range(program.rows):
        entries = slice(program.indptr[row], program.indptr[row + 1])
        columns, coefficients = program.indices[entries], program.values[entries]
        line = integer_row(columns, coefficients, grid, ~program.integer, f"`{program.row_name(row)}`")
        linear = proto.constraints.add().linear
        linear.vars.extend(line.variables.tolist())
        linear.coeffs.extend(line.weights.tolist())
        linear.domain.extend(integer_limits(line, shifts[row], program.row_lower[row], program.row_upper[row]))
    if len(objective.variables):
        proto.objective.vars.extend(objective.variables.tolist())
        proto.objective.coeffs.extend(objective.weights.tolist())


def _limit(asked: Any, limits: SolverLimits) -> None:
    asked.num_workers = 1
    asked.random_seed = limits.seed
    asked.max_deterministic_time = limits.work
    asked.absolute_gap_limit = 0.0
    asked.binary_search_num_conflicts = PROBE
    if limits.seconds is not None:
        asked.max_time_in_seconds = limits.seconds
