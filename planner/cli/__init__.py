"""The command line: `verbs/` holds one file per verb, `views/` what is printed; `app.py` maps errors to exit codes."""

from planner.cli.app import main

__all__ = [
    "main",
]
