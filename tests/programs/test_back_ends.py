"""The one call: limits, determinism, hints, and what it must not load."""

import subprocess
import sys

import numpy as np
import pytest

from planner.errors import InputError
from planner.programs import Program, ProgramBuilder, solve

TREES = ["mathopt-highs", "mathopt-scip", "cp-sat", "cbc"]


def hard(jobs: int = 24, machines: int = 4) -> Program:
    """Makespan of jobs with random times: quick to fill, slow to prove."""
    times = np.random.default_rng(0).uniform(0.1, 1, jobs)
    b = ProgramBuilder()
    end = b.variable(0, float(times.sum()), cost=1.0)
    on = [[b.variable(0, 1, integer=True) for _ in range(machines)] for _ in times]
    for job in on:
        b.row({machine: 1 for machine in job}, 1, 1)
    for machine in range(machines):
        b.row({end: 1.0, **{on[job][machine]: -time for job, time in enumerate(times)}}, lower=0)
    return b.build()


def round_robin(program: Program, machines: int = 4) -> np.ndarray:
    x = np.zeros(program.variables)
    for job in range((program.variables - 1) // machines):
        x[1 + job * machines + job % machines] = 1
    x[0] = -(program.row_activities(x)[-machines:]).min()
    return x


@pytest.mark.slow
@pytest.mark.parametrize("backend", TREES)
@pytest.mark.every(2)
def test_limited_work_gives_the_same_bytes_twice(backend):
    first, second = (solve(hard(), backend, effort=1, seed=3) for _ in range(2))
    assert first.status == "feasible"  # the limit did bind
    assert first.values.tobytes() == second.values.tobytes()
    assert (first.objective, first.bound) == (second.objective, second.bound)
    assert first.bound < first.objective


@pytest.mark.parametrize("backend", TREES)
@pytest.mark.every(2)
def test_limit_seconds(backend):
    solution = solve(hard(), backend, effort=4, limit_seconds=0.5)
    assert solution.status in ("feasible", "unknown")
    assert solution.seconds < 10


@pytest.mark.parametrize("backend", TREES)
def test_never_worse_than_the_hint(backend):
    program = hard()
    hint = round_robin(program)
    assert program.violation(hint) <= 1e-9
    solution = solve(program, backend, effort=1, limit_seconds=0.01, hint=hint)
    assert solution.status in ("feasible", "optimal")
    assert solution.objective <= program.objective(hint)


def test_wrong_arguments():
    with pytest.raises(InputError, match="no back end `cplex`"):
        solve(hard(), "cplex")
    with pytest.raises(InputError, match="effort 9"):
        solve(hard(), effort=9)
    with pytest.raises(InputError, match="0 seconds"):
        solve(hard(), limit_seconds=0)
    with pytest.raises(ValueError, match="one value for each"):
        solve(hard(), hint=np.zeros(3))


def test_brute_refuses_what_it_cannot_finish():
    with pytest.raises(InputError, match="at most 1000000"):
        solve(hard(), "brute")


def test_importing_the_package_loads_no_solver():
    code = (
        "import sys, planner.programs; print([m for m in ('ortools', 'pulp', 'pandas', 'scipy') if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
