"""Compares an old plan with a new one, or stored cases with what is solved today, and gates them."""

from planner.check.case import CheckedCase, Solving
from planner.check.case_folder import all_findings, check_folder, update_folder
from planner.check.compare import compare
from planner.check.finding import BLOCKING, Finding, Tolerances, exit_code, label, to_markdown, verdict
from planner.check.review_files import annotations, junit
