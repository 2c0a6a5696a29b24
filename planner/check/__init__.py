"""Compares an old plan with a new one, or stored cases with what is solved today, and gates them."""

from planner.check.case_folder import check_folder
from planner.check.compare import compare
from planner.check.finding import Finding, Tolerances, exit_code, to_markdown, verdict

__all__ = [
    "Finding",
    "Tolerances",
    "check_folder",
    "compare",
    "exit_code",
    "to_markdown",
    "verdict",
]
