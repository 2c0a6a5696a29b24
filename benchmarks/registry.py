"""Cases by name. A case yields figures; each becomes one JSON line with the machine and the date."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

Figures = dict[str, Any]
Case = Callable[..., Iterator[Figures]]  # given a folder of public data, or none; if it takes `pairs`, how many

CASES = {
    "solve-quality": "benchmarks.solve_quality",
    "solve-cold": "benchmarks.solve_cold",
    "simulate-speed": "benchmarks.simulate_speed",
    "simulate-175b": "benchmarks.simulate_175b",
    "megascale": "benchmarks.megascale",
    "start-up": "benchmarks.start_up",
    "run-overhead": "benchmarks.run_overhead",
    "two-speeds": "benchmarks.two_speeds",
    "task-records": "benchmarks.task_records",
    "faults": "benchmarks.faults",
    "checkpoint-stall": "benchmarks.checkpoint_stall",
    "torch-data-parallel": "benchmarks.torch_data_parallel",
    "torch-pipeline": "benchmarks.torch_pipeline",
    "load-plan": "benchmarks.load_plan",
    "pack-samples": "benchmarks.pack_samples",
    "encoder-balance": "benchmarks.encoder_balance",
    "layouts-measured": "benchmarks.layouts_measured",
    "moe-layouts": "benchmarks.moe_layouts",
    "multimodal-layouts": "benchmarks.multimodal_layouts",
    "mixes": "benchmarks.mixes",
    "omni": "benchmarks.omni",
    "equal-dp": "benchmarks.equal_dp",
    "vlm-17": "benchmarks.vlm_17",
    "long-tail": "benchmarks.long_tail",
    "baselines": "benchmarks.baselines_table",
    "data-ranks": "benchmarks.data_ranks",
    "closed-form": "benchmarks.closed_form",
    "itertime": "benchmarks.itertime",
    "layout-spaces": "benchmarks.layout_spaces",
    "layout-regret": "benchmarks.layout_regret",
    "rivals": "benchmarks.rivals",
    "families": "benchmarks.families",
    "own-errors": "benchmarks.own_errors",
    "moe-folding": "benchmarks.moe_folding",
    "recipes": "benchmarks.recipes",
    "flexsp-figure": "benchmarks.flexsp_figure",
    "pipeline-order": "benchmarks.pipeline_order",
    "replay": "benchmarks.replay",
    "replay-changed": "benchmarks.replay_changed",
    "report-page": "benchmarks.report_page",
    "measured-pipeline": "benchmarks.measured_pipeline",
    "sharded-tables": "benchmarks.sharded_tables",
    "table-training": "benchmarks.table_training",
    "schedule-jobs": "benchmarks.schedule_jobs",
    "cells": "benchmarks.cells",
    "packing": "benchmarks.packing",
    "learned-policy": "benchmarks.learned_policy",
    "elastic-serving": "benchmarks.elastic_serving",
    "placer": "benchmarks.placer",
    "loaders": "benchmarks.loaders",
    "shares": "benchmarks.shares",
    "public-bills": "benchmarks.public_bills",
    "pools": "benchmarks.pools",
}


def case(name: str) -> Case:
    run: Case = import_module(CASES[name]).run
    return run
