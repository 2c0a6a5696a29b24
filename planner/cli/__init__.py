"""The command line: its verbs, views of what is printed, and exit codes of errors."""

from planner.cli.app import main
