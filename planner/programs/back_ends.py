"""The single entry point to all back ends: solve a program, check the answer, and report its status."""

from collections.abc import Callable
from importlib import import_module
from time import perf_counter

from planner.errors import InputError
from planner.programs.answer_check import checked_solution
from planner.programs.program import Floats, Program
from planner.programs.solver_answer import Solution, SolverAnswer, SolverLimits

BackEnd = Callable[[Program, SolverLimits, Floats | None], SolverAnswer]

BACKENDS = {
    "mathopt-highs": "planner.programs.mathopt:solve_highs",
    "mathopt-scip": "planner.programs.mathopt:solve_scip",
    "cp-sat": "planner.programs.cp_sat:solve",
    "cbc": "planner.programs.cbc:solve",
    "brute": "planner.programs.brute:solve",
}


def solve(
    program: Program,
    backend: str = "mathopt-highs",
    *,
    limit_seconds: float | None = None,
    effort: int = 2,
    seed: int = 0,
    hint: Floats | None = None,
) -> Solution:
    """The best feasible point found and the best bound proven, both checked. Raises InputError for bad arguments.

    `effort` 1..4 limits the work, so that the same call always gives the same answer unless `limit_seconds` cuts it
    short. A feasible `hint`, (variables,), is a candidate like any other: the solution is never worse.
    """
    back_end = _back_end(backend)
    if effort not in (1, 2, 3, 4):
        raise InputError(f"effort {effort} is none of 1, 2, 3, 4", fix="choose one of them")
    if limit_seconds is not None and limit_seconds <= 0:
        raise InputError(f"{limit_seconds:g} seconds are no time to solve in", fix="give more, or no limit")
    if hint is not None and hint.shape != (program.variables,):
        raise ValueError(f"a hint has one value for each of the {program.variables} variables")
    start = perf_counter()
    limits = SolverLimits(effort=effort, seconds=limit_seconds, seed=seed)
    program = program.tightened()
    answer = SolverAnswer("infeasible") if program.has_crossed_bounds() else back_end(program, limits, hint)
    if answer.claim == "unbounded":
        answer = _unbounded_or_not(back_end, program, limits)
    return checked_solution(program, answer, hint, perf_counter() - start, backend)


def _back_end(name: str) -> BackEnd:
    """The function of a back end. Raises InputError for an unknown name."""
    if name not in BACKENDS:
        raise InputError(f"there is no back end `{name}`", fix=f"choose one of {', '.join(BACKENDS)}")
    module, _, function = BACKENDS[name].partition(":")
    found: BackEnd = getattr(import_module(module), function)
    return found


def _unbounded_or_not(back_end: BackEnd, program: Program, limits: SolverLimits) -> SolverAnswer:
    """Tell unbounded from infeasible, which solvers do not: without an objective nothing is unbounded."""
    answer = back_end(program.without_objective(), limits, None)
    if answer.claim != "searched":
        return SolverAnswer("infeasible")
    return SolverAnswer("unbounded") if answer.values is not None else SolverAnswer()
