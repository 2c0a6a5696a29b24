"""Graphs of one or more ranks on one clock, and what their times say: breakdown, critical path, stragglers."""

from planner.replay.timing.chrome_trace import write_chrome_trace
from planner.replay.timing.compared_replays import ReplayComparison, compare_replays
from planner.replay.timing.job_ranks import require_one_job
from planner.replay.timing.late_ranks import LateCause, Straggler, find_stragglers, named_cause
from planner.replay.timing.timed_replay import median_step_error, worst_step_error
from planner.replay.timing.verdict import Verdict, step_verdict
