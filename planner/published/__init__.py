"""Measurements that others published: CSV files of one schema, as cases that can be priced."""

from planner.published.case_seconds import CaseGroup, group_cases, log_seconds
from planner.published.possible_setups import each_setup, setup_shares
from planner.published.predict_cases import predict_cases
from planner.published.published_case import CasePrediction, PublishedCase, RecordOrigin, SkippedRecord
from planner.published.read_published import read_published
from planner.published.record_files import is_published_file
from planner.published.shipped_profiles import device_profile, machine_as_shipped, pricing_machine
