"""Writes a plan, a timeline or a ledger as one self-contained HTML page."""

from planner.report.ledger_page import ledger_page
from planner.report.page import Page
from planner.report.page_step import PageStep, recorded_step, simulated_step
from planner.report.plan_page import plan_page
from planner.report.runs_page import runs_page
from planner.report.timeline_page import timeline_page

__all__ = [
    "Page",
    "PageStep",
    "ledger_page",
    "plan_page",
    "recorded_step",
    "runs_page",
    "simulated_step",
    "timeline_page",
]
