"""A back end in a process of its own, for libraries that cannot share a process with others.

The parent writes `asked.npz` into a temporary folder and starts this module there; the child writes `answer.npz`.
All files of the child are in that folder, and its process group is killed when the parent is interrupted.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import planner
from planner.errors import RunFailed
from planner.programs.program import Floats, Program
from planner.programs.solver_answer import Claim, SolverAnswer, SolverLimits

ARRAYS = ("cost", "lower", "upper", "integer", "indptr", "indices", "values", "row_lower", "row_upper")


def solve_in_process(target: str, program: Program, limits: SolverLimits, hint: Floats | None) -> SolverAnswer:
    """The answer of `target` (`module:function`), run in a new process. Raises RunFailed when that fails."""
    with TemporaryDirectory(prefix="planner-solve-") as folder:
        seconds = -1.0 if limits.seconds is None else limits.seconds
        np.savez(
            Path(folder, "asked.npz"),
            limits=np.array([limits.effort, seconds, limits.seed]),
            hint=np.zeros(0) if hint is None else hint,
            **{name: getattr(program, name) for name in ARRAYS},
        )
        _run(target, folder)
        with np.load(Path(folder, "answer.npz"), allow_pickle=False) as answer:
            values = answer["values"] if answer["found"] else None
            claim: Claim = str(answer["claim"])  # type: ignore[assignment]
            return SolverAnswer(claim, values, float(answer["bound"]), bool(answer["approximate"]))


def _run(target: str, folder: str) -> None:
    """Run this module as a script in a folder."""
    path = os.pathsep.join(filter(None, [str(Path(planner.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
    with subprocess.Popen(
        [sys.executable, "-m", "planner.programs.solver_process", target],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": folder, "TMP": folder, "TEMP": folder},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            _, noise = process.communicate()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        last = (noise.strip().splitlines() or ["no output"])[-1]
        raise RunFailed(
            f"the solver's process ended with status {process.returncode}: {last}",
            where=target,
            fix="choose another back end",
        )


def main() -> None:
    """The child: solve `asked.npz` of the working folder and write `answer.npz`."""
    with np.load("asked.npz", allow_pickle=False) as asked:
        program = Program(**{name: asked[name] for name in ARRAYS})
        effort, seconds, seed = asked["limits"].tolist()
        hint = asked["hint"] if len(asked["hint"]) else None
    module, _, function = sys.argv[1].partition(":")
    limits = SolverLimits(effort=int(effort), seconds=None if seconds < 0 else seconds, seed=int(seed))
    answer = getattr(import_module(module), function)(program, limits, hint)
    found = answer.values is not None
    values = answer.values if found else np.zeros(0)
    np.savez(
        "answer.npz", claim=answer.claim, bound=answer.bound, approximate=answer.approximate, found=found, values=values
    )


if __name__ == "__main__":
    main()
