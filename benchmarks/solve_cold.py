"""`planner solve` from nothing to the written plan: a new process, imports included."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.registry import Figures

REPEATS = 5


def run(data: Path | None) -> Iterator[Figures]:
    with TemporaryDirectory() as folder:
        for job in ("flexsp-gpt-7b-a100x64", "demo-cpu-4"):
            command = [sys.executable, "-m", "planner", "solve", job, "-o", f"{folder}/plan.yaml"]
            times = []
            for _ in range(REPEATS):
                start = perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                times.append(perf_counter() - start)
            yield {"job": job, "seconds": round(median(times), 3), "repeats": REPEATS}
