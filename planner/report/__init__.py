"""Writes a plan, a timeline, a recording or a ledger as one self-contained HTML page."""

from planner.report.ledger_page import (
    RANKING_HEADS,
    ledger_page,
    ranking_cells,
    share_text,
    signed_share,
    skip_reasons,
    time_errors,
)
from planner.report.page import Page
from planner.report.page_step import PageStep, recorded_step
from planner.report.plan_page import plan_page
from planner.report.pool_page import pool_page
from planner.report.replay_page import ReplayFindings, replay_page
from planner.report.runs_page import LAST_RUN_HEADS, RUN_HEADS, last_run_cells, run_cells, runs_page
from planner.report.schedule_page import schedule_page
from planner.report.serving_page import serving_page
from planner.report.timeline_page import timeline_page
