"""The command line: one file per verb (`verbs/`), what is printed (`views/`), exit codes (`app.py`)."""

from planner.cli.app import main

__all__ = [
    "main",
]
