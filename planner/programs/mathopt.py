"""HiGHS, SCIP and GLOP through the MathOpt of OR-Tools, with the model written directly into its protobuf message.

Both search trees run on one thread and are limited in nodes, so the same input gives the same answer. HiGHS is linked
into more than one Python package, and two copies in a process can crash it; where PuLP or highspy is already loaded, it
runs in a process of its own.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
from ortools.math_opt import callback_pb2, model_parameters_pb2, model_pb2, parameters_pb2, result_pb2
from ortools.math_opt.core.python import solver
from pybind11_abseil.status import StatusNotOk  # type: ignore[import-untyped]

from planner.programs.program import Floats, Program
from planner.programs.solver_answer import SolverAnswer, SolverLimits

FEASIBLE = 1e-8  # violation of a row; with the default 1e-6 a bound can pass the true optimum by more
GAP = 1e-8  # requested of the search trees; the check of answers accepts 1e-6 as optimal
INFEASIBLE = {result_pb2.TERMINATION_REASON_INFEASIBLE}
UNBOUNDED = {result_pb2.TERMINATION_REASON_UNBOUNDED, result_pb2.TERMINATION_REASON_INFEASIBLE_OR_UNBOUNDED}


def solve_highs(program: Program, limits: SolverLimits, hint: Floats | None) -> SolverAnswer:
    """HiGHS, in a new process where another copy of it is loaded."""
    if not sys.modules.keys().isdisjoint({"pulp", "highspy"}):
        from planner.programs.solver_process import solve_in_process

        return solve_in_process("planner.programs.mathopt:solve_highs", program, limits, hint)
    parameters = _parameters(limits)
    parameters.highs.int_options["threads"] = 1
    parameters.highs.double_options["primal_feasibility_tolerance"] = FEASIBLE
    parameters.highs.double_options["mip_feasibility_tolerance"] = FEASIBLE
    parameters.highs.string_options["parallel"] = "off"
    return solve_model(model_proto(program), parameters_pb2.SOLVER_TYPE_HIGHS, parameters, hint)


def solve_scip(program: Program, limits: SolverLimits, hint: Floats | None) -> SolverAnswer:
    """SCIP, on one thread."""
    parameters = _parameters(limits)
    parameters.threads = 1
    parameters.gscip.real_params["numerics/feastol"] = FEASIBLE
    # SCIP 9 can presolve a row of two variables with two sides into a wrong one (it says so itself, afterwards).
    parameters.gscip.bool_params["constraints/linear/upgrade/varbound"] = False
    return solve_model(model_proto(program), parameters_pb2.SOLVER_TYPE_GSCIP, parameters, hint)


def model_proto(program: Program) -> Any:
    """The program as a ModelProto."""
    proto = model_pb2.ModelProto()
    proto.variables.ids.extend(range(program.variables))
    proto.variables.lower_bounds.extend(program.lower.tolist())
    proto.variables.upper_bounds.extend(program.upper.tolist())
    proto.variables.integers.extend(program.integer.tolist())
    paid = np.flatnonzero(program.cost)
    proto.objective.linear_coefficients.ids.extend(paid.tolist())
    proto.objective.linear_coefficients.values.extend(program.cost[paid].tolist())
    proto.linear_constraints.ids.extend(range(program.rows))
    proto.linear_constraints.lower_bounds.extend(program.row_lower.tolist())
    proto.linear_constraints.upper_bounds.extend(program.row_upper.tolist())
    proto.linear_constraint_matrix.row_ids.extend(program.entry_rows().tolist())
    proto.linear_constraint_matrix.column_ids.extend(program.indices.tolist())
    proto.linear_constraint_matrix.coefficients.extend(program.values.tolist())
    return proto


def solve_model(proto: Any, solver_type: Any, parameters: Any, hint: Floats | None = None) -> SolverAnswer:
    """Solve a ModelProto with one of MathOpt's solvers."""
    model_parameters = model_parameters_pb2.ModelSolveParametersProto()
    if hint is not None:
        start = model_parameters.solution_hints.add().variable_values
        start.ids.extend(range(len(hint)))
        start.values.extend(hint.tolist())
    init, nothing = parameters_pb2.SolverInitializerProto(), callback_pb2.CallbackRegistrationProto()
    try:
        with without_stdout():
            result = solver.solve(proto, solver_type, init, parameters, model_parameters, None, nothing, None, None)
    except StatusNotOk as error:
        if "objective_value" in str(error):  # SCIP reports an infinite ray as a solution that costs -inf
            return SolverAnswer("unbounded")
        return SolverAnswer()  # the solver failed, for instance on coefficients beyond its range: nothing is known
    reason = result.termination.reason
    if reason in INFEASIBLE:
        return SolverAnswer("infeasible")
    if reason in UNBOUNDED:  # or infeasible: the caller has to tell them apart
        return SolverAnswer("unbounded")
    bound = result.termination.objective_bounds.dual_bound
    if not result.solutions:
        return SolverAnswer(bound=bound)
    return SolverAnswer(values=np.array(result.solutions[0].primal_solution.variable_values.values), bound=bound)


@contextmanager
def without_stdout() -> Iterator[None]:
    """Drop what is written to stdout: HiGHS prints some warnings in any case, which would break the output of `--json`
    and mean nothing to people; what went wrong is in its answer.
    """
    sys.stdout.flush()
    saved, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _parameters(limits: SolverLimits) -> Any:
    parameters = parameters_pb2.SolveParametersProto(
        random_seed=limits.seed, node_limit=limits.nodes, relative_gap_tolerance=GAP, absolute_gap_tolerance=GAP
    )
    if limits.seconds is not None:
        parameters.time_limit.FromTimedelta(timedelta(seconds=limits.seconds))
    return parameters
