"""Every benchmark can be imported: what it takes from the package is there."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = {"torchrec_runs"}  # of packages that are in no extra
FILES = [path for path in sorted((ROOT / "benchmarks").rglob("*.py")) if path.stem not in OTHERS | {"__main__"}]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_benchmark_is_imported(path):
    importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
