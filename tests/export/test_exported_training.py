"""Torch trains by an exported schedule: two processes get the gradients of one."""

import subprocess
import sys
from pathlib import Path

import pytest

from planner.export.torch_csv import to_csv
from tests.plan.schedules.made import ordered_plan

ROOT = Path(__file__).parents[2]
MIXED = ("F2 F0 F1 I2 B0 B1 W2 F3 B3", "F2 B2 F0 I0 F1 W0 B1 F3 I3 W3")  # numbered anew on the way out


@pytest.mark.slow
@pytest.mark.parametrize(("order", "chunks"), [("zb_h1", 1), (MIXED, 1), ("interleaved", 2)])
@pytest.mark.every(3)
def test_two_processes_get_the_gradients_of_one(tmp_path, order, chunks):
    import torch

    from tests.export.trained import whole

    (tmp_path / "schedule.csv").write_text(to_csv(ordered_plan(2, 4, order, chunks))[0])
    words, file = [sys.executable, "-m", "tests.export.trained"], str(tmp_path / "schedule.csv")
    ranks = [subprocess.Popen([*words, str(rank), file, "4", str(tmp_path)], cwd=ROOT) for rank in (0, 1)]
    try:
        assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    expected = whole(2 * chunks, 4)
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for mine, there in zip(found, expected[rank::2], strict=True):
            assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in zip(mine, there, strict=True))
