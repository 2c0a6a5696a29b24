"""How long `planner --help` takes, beside an empty Python process."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.registry import Figures

REPEATS = 15


def run(data: Path | None) -> Iterator[Figures]:
    empty, helped = [], []
    for _ in range(REPEATS):  # interleaved, so that a busy moment hits both
        empty.append(seconds("-c", "pass"))
        helped.append(seconds("-m", "planner", "--help"))
    yield {"what": "planner --help", "seconds": round(median(helped), 3), "empty_process": round(median(empty), 3)}


def seconds(*arguments: str) -> float:
    start = perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return perf_counter() - start
