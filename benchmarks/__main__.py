"""`python -m benchmarks [CASE…] [--data FOLDER] [--pairs N]`: one JSON line for each figure."""

import argparse
import json
import os
import platform
from collections.abc import Sequence
from datetime import date
from inspect import signature
from pathlib import Path

from benchmarks.registry import CASES, case


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all when none is named")
    parser.add_argument("--data", type=Path, help="folder with seqlen/flexsp_wikipedia_first_half.csv.gz")
    parser.add_argument("--pairs", type=int, help="pairs of steps, where two trainers take turns (default 30)")
    chosen = parser.parse_args(arguments)
    for name in chosen.cases or CASES:
        run = case(name)
        fewer = {"pairs": chosen.pairs} if chosen.pairs and "pairs" in signature(run).parameters else {}
        for figures in run(chosen.data, **fewer):
            print(json.dumps({"case": name, **figures, "machine": machine(), "date": str(date.today())}), flush=True)


def machine() -> str:
    """Enough to know what a time means."""
    cores = len(os.sched_getaffinity(0))
    return f"{platform.machine()}, {cores} cores, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
