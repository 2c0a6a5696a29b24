"""One call for every back end: solve a program, check the answer, say how good it is."""

from collections.abc import Callable
from importlib import import_module
from time import perf_counter

from planner.errors import InputError
from planner.solve.answer import Answer, Limits, Solution
from planner.solve.judge import conclude
from planner.solve.program import Floats, Program

BackEnd = Callable[[Program, Limits, Floats | None], Answer]

BACKENDS = {
    "mathopt-highs": "planner.solve.mathopt:solve_highs",
    "mathopt-scip": "planner.solve.mathopt:solve_scip",
    "cp-sat": "planner.solve.cp_sat:solve",
    "cbc": "planner.solve.cbc:solve",
    "brute": "planner.solve.brute:solve",
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
    """The best legal point found and the best bound proven, both checked.

    `effort` 1..4 limits the work, so that the same call always gives the same answer unless `limit_seconds` cuts it
    short. A `hint` that is legal is a candidate like any other: the solution is never worse.
    """
    answered = _back_end(backend)
    if effort not in (1, 2, 3, 4):
        raise InputError(f"effort {effort} is none of 1, 2, 3, 4", fix="choose one of them")
    if limit_seconds is not None and limit_seconds <= 0:
        raise InputError(f"{limit_seconds:g} seconds are no time to solve in", fix="give more, or no limit")
    if hint is not None and hint.shape != (program.variables,):
        raise ValueError(f"a hint has one value for each of the {program.variables} variables")
    start = perf_counter()
    limits = Limits(effort=effort, seconds=limit_seconds, seed=seed)
    program = program.tightened()
    answer = Answer("infeasible") if program.crossed() else answered(program, limits, hint)
    if answer.claim == "unbounded":
        answer = _unbounded_or_not(answered, program, limits)
    return conclude(program, answer, hint, perf_counter() - start, backend)


def _back_end(name: str) -> BackEnd:
    if name not in BACKENDS:
        raise InputError(f"there is no back end `{name}`", fix=f"choose one of {', '.join(BACKENDS)}")
    module, _, function = BACKENDS[name].partition(":")
    found: BackEnd = getattr(import_module(module), function)
    return found


def _unbounded_or_not(answered: BackEnd, program: Program, limits: Limits) -> Answer:
    """Solvers say "unbounded" of what may also be infeasible. Without an objective nothing is unbounded."""
    answer = answered(program.without_objective(), limits, None)
    if answer.claim != "searched":
        return Answer("infeasible")
    return Answer("unbounded") if answer.values is not None else Answer()
