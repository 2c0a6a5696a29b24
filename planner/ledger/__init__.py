"""Predictions compared with measurements: of runs made here, and of published records."""

from planner.ledger.accuracy import AccuracyFigures, AccuracyReport, accuracy_json, accuracy_of_folder
from planner.ledger.compared_run import ComparedRun, PeakMemoryUse, compare_run, fullest_rank, memory_uses
from planner.ledger.predicted_records import PredictedRecord
from planner.ledger.run_ledger import (
    RunDrift,
    RunEntry,
    UnreadLine,
    append_entry,
    default_path,
    drift_by_plan,
    read_entries,
)
from planner.ledger.slow_ranks import ComparedRanks, SlowRank, SlowRankWatch
from planner.ledger.step_difference import DifferenceLine, StepDifference, explain_difference, sum_by_name
from planner.ledger.step_overlay import StepOverlay, measured_steps_of_plan, overlay_steps
from planner.ledger.work_kinds import KindSeconds, MeasuredTask, measured_timeline, seconds_by_kind
