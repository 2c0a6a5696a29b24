"""Writes a plan, a timeline or a ledger as one self-contained HTML page."""

from planner.report.ledger_page import ledger_page
from planner.report.page import Page
from planner.report.plan_page import Why, plan_page
from planner.report.runs_page import runs_page
from planner.report.shown import Shown, recorded, simulated
from planner.report.timeline_page import timeline_page

__all__ = ["Page", "Shown", "Why", "ledger_page", "plan_page", "recorded", "runs_page", "simulated", "timeline_page"]
