"""`python -m benchmarks [CASE…] [--data FOLDER]`: one JSON line for each figure."""

import argparse
import json
import os
import platform
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from benchmarks.registry import CASES, case


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all when none is named")
    parser.add_argument("--data", type=Path, help="folder with seqlen/flexsp_wikipedia_first_half.csv.gz")
    chosen = parser.parse_args(arguments)
    for name in chosen.cases or CASES:
        for figures in case(name)(chosen.data):
            print(json.dumps({"case": name, **figures, "machine": machine(), "date": str(date.today())}), flush=True)


def machine() -> str:
    """Enough to know what a time means."""
    cores = len(os.sched_getaffinity(0))
    return f"{platform.machine()}, {cores} cores, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
