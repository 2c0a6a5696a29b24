"""The command line: one file per verb, one of views for what is printed, and exit codes of errors."""

from planner.cli.app import main

__all__ = [
    "main",
]
