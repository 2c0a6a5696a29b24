"""Thin products tell how fast memory streams."""

from itertools import product

import pytest

from planner.calibrate.kernel_fits import fit_memory_bandwidth, read_gemm
from tests.calibrate.generated_tables import write


def test_share_and_launch_come_back(tmp_path):
    rows = []
    for m, n, k in product((1, 8, 16), (8192, 16384, 65536), (8192, 16384, 65536)):
        rows.append((m, n, k, (2 * (m * n + n * k + m * k) / (0.75 * 2e12) + 5e-6) * 1e3))
    rows += [(4096, 8192, 8192, 50.0)]  # computes: tells nothing of memory
    memory = fit_memory_bandwidth(read_gemm(write(tmp_path / "t.csv", ("m", "n", "k", "latency"), rows)), 2000)
    assert memory.values["share"] == pytest.approx(0.75, rel=1e-3)
    assert memory.values["launch_us"] == pytest.approx(5, rel=1e-2)
    assert memory.summary.outside_error is None
