"""Torch trains by an exported schedule: two processes get the gradients of one."""

import numpy as np
import pytest

from planner.export.torch_csv import to_csv
from planner.launch.processes import launch
from tests.plan.schedules.made import ordered_plan

MIXED = ("F2 F0 F1 I2 B0 B1 W2 F3 B3", "F2 B2 F0 I0 F1 W0 B1 F3 I3 W3")  # numbered anew on the way out


@pytest.mark.slow
@pytest.mark.parametrize(("order", "chunks"), [("zb_h1", 1), (MIXED, 1), ("interleaved", 2)])
@pytest.mark.every(3)
def test_two_processes_get_the_gradients_of_one(tmp_path, order, chunks):
    from tests.export.trained import train, whole

    file = tmp_path / "schedule.csv"
    file.write_text(to_csv(ordered_plan(2, 4, order, chunks))[0])
    expected = whole(2 * chunks, 4)
    for rank, found in enumerate(launch(train, 2, str(file), 4)):
        for mine, there in zip(found, expected[rank::2], strict=True):
            assert all(np.allclose(a, b.numpy(), rtol=1e-12, atol=1e-12) for a, b in zip(mine, there, strict=True))
