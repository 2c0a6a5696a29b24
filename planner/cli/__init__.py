"""The command line: one file per verb, views of what is printed, and exit codes of errors."""

from planner.cli.app import main

__all__ = [
    "main",
]
