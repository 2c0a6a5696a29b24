"""Ranks of `python -m planner.runtime` under the environment of torchrun, forked from the process of all other tests:
`test_two_hosts.py` has torchrun itself.
"""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from planner.launch.processes import launch
from planner.runtime.__main__ import main


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run_ranks(ranks: int, *words: object) -> list[Done]:
    """What each rank said, of a plan and its options."""
    return launch(one_rank, ranks, list(map(str, words)))


def one_rank(worker, words: list[str]) -> Done:
    sys.argv = ["planner.runtime", *words]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
        code = main()
    return Done(code, out.getvalue(), errors.getvalue())
