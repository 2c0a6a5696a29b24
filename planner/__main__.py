"""`planner`, and `python -m planner`."""

import atexit
import os
import sys
from contextlib import suppress

from planner.cli import main as run_verb


def main() -> None:
    """Run a verb and end the process: where torch was loaded, without taking torch apart, which takes seconds on a busy
    machine and sometimes aborts.
    """
    try:
        run_verb()
    except SystemExit as left:
        if "torch" in sys.modules and isinstance(left.code, int):
            end_now(left.code)
        raise


def end_now(code: int) -> None:
    """End this process as Python would, but for its modules."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
