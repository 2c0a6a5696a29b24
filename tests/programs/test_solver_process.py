"""A back end in another process: it answers the same, its failures are named, and it leaves nothing behind."""

import os
import signal
import sys
import threading
import time
import types
from math import inf
from pathlib import Path

import numpy as np
import pytest

from planner.errors import RunFailed
from planner.programs import Program, ProgramBuilder, mathopt, solve
from planner.programs.solver_answer import SolverLimits
from planner.programs.solver_process import solve_in_process
from tests.launch.test_processes import gone

IMPORTS = "import numpy as np; from planner.programs.solver_answer import SolverAnswer"


def program() -> Program:
    b = ProgramBuilder()
    x, y = b.variable(0, 9, integer=True, cost=-3), b.variable(-inf, 5.5, cost=-1)
    b.row({x: 2, y: 1}, upper=12.5)
    return b.build()


@pytest.fixture
def back_end(tmp_path, monkeypatch):
    """Writes a module that the other process can import, and names its `solve`."""

    def write(body: str) -> str:
        Path(tmp_path, "strange_back_end.py").write_text(f"def solve(program, limits, hint):\n    {body}\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return "strange_back_end:solve"

    return write


@pytest.mark.parametrize("hint", [None, np.array([1.0, 2.0])])
def test_nothing_is_lost_on_the_way(back_end, hint):
    seen = "program.upper[0], program.lower[1], program.integer.sum(), limits.effort, limits.seed, limits.seconds"
    values = f"np.array([{seen}, 0 if hint is None else hint[1]])"
    body = f"{IMPORTS}; return SolverAnswer(values={values}, bound=-2.5, approximate=True)"
    answer = solve_in_process(back_end(body), program(), SolverLimits(effort=3, seconds=1.5, seed=7), hint)
    assert answer.values.tolist() == [9, -inf, 1, 3, 7, 1.5, 0 if hint is None else 2]
    assert (answer.claim, answer.bound, answer.approximate) == ("searched", -2.5, True)


def test_highs_goes_apart_where_another_copy_may_be_loaded(monkeypatch):
    here = mathopt.solve_highs(program(), SolverLimits(), None)
    gone = []
    monkeypatch.setitem(sys.modules, "pulp", types.ModuleType("pulp"))
    monkeypatch.setattr(
        "planner.programs.solver_process.solve_in_process",
        lambda *asked: gone.append(asked[0]) or solve_in_process(*asked),
    )
    there = mathopt.solve_highs(program(), SolverLimits(), None)
    assert gone == ["planner.programs.mathopt:solve_highs"]
    assert here.values.tobytes() == there.values.tobytes()


def test_cbc_never_loads_pulp_here():
    assert solve(program(), "cbc").status == "optimal"
    assert "pulp" not in sys.modules


def test_an_exception_there_is_named_here(back_end):
    with pytest.raises(RunFailed, match="no such corner"):
        solve_in_process(back_end("raise RuntimeError('no such corner')"), program(), SolverLimits(), None)


def test_a_crash_there_is_named_here(back_end):
    with pytest.raises(RunFailed, match=f"status -{int(signal.SIGSEGV)}"):
        solve_in_process(back_end("import os; os.kill(os.getpid(), 11)"), program(), SolverLimits(), None)


def test_an_interruption_leaves_no_process(back_end, tmp_path):
    pid = tmp_path / "pid"
    body = "import subprocess; child = subprocess.Popen(['sleep', '60'])"
    body += f"; open({str(pid)!r}, 'w').write(str(child.pid)); child.wait()"

    def interrupt(*_):
        raise KeyboardInterrupt

    def once_it_runs():
        while not (pid.exists() and pid.read_text()):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGALRM)

    previous = signal.signal(signal.SIGALRM, interrupt)
    watcher = threading.Thread(target=once_it_runs)
    watcher.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            solve_in_process(back_end(body), program(), SolverLimits(), None)
    finally:
        watcher.join()
        signal.signal(signal.SIGALRM, previous)
    assert gone([int(pid.read_text())])


def test_an_answer_without_values(back_end):
    answer = solve_in_process(
        back_end(f"{IMPORTS}; return SolverAnswer('infeasible')"), program(), SolverLimits(), None
    )
    assert (answer.claim, answer.values) == ("infeasible", None)
