"""Cases by name. A case yields figures; each becomes one JSON line with the machine and the date."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
Case = Callable[[Path | None], Iterator[Figures]]  # given a folder of public data, or none

CASES = {
    "solve-quality": "benchmarks.solve_quality",
    "solve-cold": "benchmarks.solve_cold",
    "simulate-speed": "benchmarks.simulate_speed",
    "start-up": "benchmarks.start_up",
    "run-overhead": "benchmarks.run_overhead",
    "baselines": "benchmarks.baselines_table",
    "data-ranks": "benchmarks.data_ranks",
    "closed-form": "benchmarks.closed_form",
    "itertime": "benchmarks.itertime",
    "flexsp-figure": "benchmarks.flexsp_figure",
    "measured-pipeline": "benchmarks.measured_pipeline",
}


def case(name: str) -> Case:
    run: Case = import_module(CASES[name]).run
    return run
