"""The command line: `verbs/` has one file per verb, `views/` what is printed; `app.py` maps errors to exit codes."""

from planner.cli.app import main

__all__ = [
    "main",
]
