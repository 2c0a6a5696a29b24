"""CBC through PuLP, always in a process of its own, because PuLP loads a second HiGHS where it finds one.

PuLP returns neither the bound nor more than eight digits of the values. So the bound is read from CBC's log (which has
three decimals: half a unit is subtracted), and the values are repaired when the answer is checked. For both, the
objective is scaled by a power of two until its largest cost is about a thousand.
"""

import re
import warnings
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from planner.programs.program import Floats, Program
from planner.programs.solver_answer import SolverAnswer, SolverLimits
from planner.programs.solver_process import solve_in_process

LOG_ERROR = 0.5e-3  # of "Lower bound:" in the log


def solve(program: Program, limits: SolverLimits, hint: Floats | None) -> SolverAnswer:
    """Solve in a new process."""
    return solve_in_process("planner.programs.cbc:solve_here", program, limits, hint)


def solve_here(program: Program, limits: SolverLimits, hint: Floats | None) -> SolverAnswer:
    """Solve in this process, which must not have loaded another HiGHS."""
    warnings.simplefilter("ignore")  # PuLP announces its next major version on every use
    import pulp

    scale = _scale(program)
    problem, columns = _problem(pulp, program, scale)
    if hint is not None:
        for column, value in zip(columns, hint.tolist(), strict=True):
            column.setInitialValue(value, check=False)
    log = Path("cbc.log")
    problem.solve(_solver(pulp, limits, log, warm=hint is not None))
    if problem.sol_status == pulp.LpSolutionInfeasible or problem.status == pulp.LpStatusInfeasible:
        return SolverAnswer("infeasible")
    if problem.sol_status == pulp.LpSolutionUnbounded:
        return SolverAnswer("unbounded")
    values = np.array([column.varValue or 0.0 for column in columns], dtype=np.float64)
    if problem.sol_status == pulp.LpSolutionOptimal:
        return SolverAnswer(values=values, bound=program.objective(values), approximate=True)
    return SolverAnswer(values=values, bound=_logged_bound(log.read_text()) / scale, approximate=True)


def _scale(program: Program) -> float:
    """The power of two that brings the largest cost to about a thousand."""
    largest = float(np.abs(program.cost).max(initial=0.0))
    return float(np.exp2(10 - np.ceil(np.log2(largest)))) if largest > 0 else 1.0


def _problem(pulp: Any, program: Program, scale: float) -> tuple[Any, list[Any]]:
    """The program as a PuLP problem, and its variables."""
    problem = pulp.LpProblem("program", pulp.LpMinimize)
    columns = [
        pulp.LpVariable(f"x{j}", _end(low), _end(high), pulp.LpInteger if whole else pulp.LpContinuous)
        for j, (low, high, whole) in enumerate(
            zip(program.lower.tolist(), program.upper.tolist(), program.integer.tolist(), strict=True)
        )
    ]
    problem.setObjective(pulp.LpAffineExpression(zip(columns, (program.cost * scale).tolist(), strict=True)))
    for row in range(program.rows):
        entries = slice(program.indptr[row], program.indptr[row + 1])
        weights = program.values[entries].tolist()
        terms = [(columns[j], weight) for j, weight in zip(program.indices[entries], weights, strict=True)]
        low, high = float(program.row_lower[row]), float(program.row_upper[row])
        equal = [(pulp.LpConstraintEQ, low)]
        for sense, end in equal if low == high else [(pulp.LpConstraintGE, low), (pulp.LpConstraintLE, high)]:
            if abs(end) != inf:
                problem.addConstraint(pulp.LpConstraint(pulp.LpAffineExpression(terms), sense, None, end))
    return problem, columns


def _end(bound: float) -> float | None:
    """PuLP writes a missing bound as None."""
    return None if abs(bound) == inf else bound


def _solver(pulp: Any, limits: SolverLimits, log: Path, *, warm: bool) -> Any:
    seeds = [f"randomSeed {limits.seed + 1}", f"randomCbcSeed {limits.seed + 1}"]  # 0 is the time of day
    bundled = pulp.PULP_CBC_CMD(msg=False)
    command = pulp.PULP_CBC_CMD if bundled.available() else pulp.COIN_CMD
    return command(
        msg=False,
        timeLimit=limits.seconds,
        maxNodes=limits.nodes,
        threads=1,
        warmStart=warm,
        options=[*seeds, "increment 1e-9", "allow 1e-9", "ratio 1e-9"],
        logPath=str(log),
    )


def _logged_bound(log: str) -> float:
    """The last lower bound in CBC's log, rounded down; -inf without one."""
    found = re.findall(r"^Lower bound:\s+(\S+)", log, re.MULTILINE)
    return float(found[-1]) - LOG_ERROR if found else -inf
