"""Commands as they are typed, run in this process: a process of their own would import everything again."""

import io
import shlex
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from planner.cli.app import main


class Printed(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    errors: str


def typed(command: str, folder: Path) -> Printed:
    """What a command prints in a folder, and its exit code."""
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.chdir(folder)
        patch.setattr(sys, "argv", shlex.split(command))
        patch.setattr(signal, "signal", lambda *_: None)  # handlers of a process are pytest's here
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Printed(code, out.getvalue(), errors.getvalue())
