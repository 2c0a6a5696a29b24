"""Each kind's line over each number of ranks comes back, in bytes though tables count elements."""

import pytest

from planner.calibrate.device_rates_fit import collective_costs
from planner.calibrate.kernel_fits import fit_collectives, read_collectives
from planner.errors import InputError
from tests.calibrate.generated_tables import noisy, write

HEADER = ("op_name", "num_gpus", "message_size", "nccl_dtype", "latency")
LINES = {("alltoall", 2): (15.0, 500.0), ("alltoall", 8): (20.0, 300.0), ("all_gather", 4): (30.0, 250.0)}


def rows():
    made = []
    for (kind, ranks), (latency_us, gb_per_s) in LINES.items():
        for power in range(21, 29):  # elements of 2 bytes
            made.append((kind, ranks, 2**power, "half", (latency_us * 1e-6 + 2 * 2**power / (gb_per_s * 1e9)) * 1e3))
        made.append((kind, ranks, 2**21, "int8", 9.0))
        made.append((kind, ranks, 256, "half", 0.001))  # another protocol: fits nothing
    return made


def test_known_lines_come_back(tmp_path):
    fits = dict(fit_collectives(read_collectives(write(tmp_path / "t.csv", HEADER, rows()))))
    table = collective_costs(fits)
    assert sorted(table) == ["all_gather", "all_to_all"]
    for (kind, ranks), (latency_us, gb_per_s) in LINES.items():
        name = {"alltoall": "all_to_all"}.get(kind, kind)
        point = next(point for point in table[name].points if point.ranks == ranks)
        assert point.latency_us == pytest.approx(latency_us, rel=1e-2)
        assert point.gb_per_s == pytest.approx(gb_per_s, rel=1e-3)
        assert fits[f"{name}/{ranks}"].summary.rows == 8


def test_the_spread_is_that_of_the_worst_number_of_ranks(tmp_path):
    fits = dict(fit_collectives(read_collectives(write(tmp_path / "t.csv", HEADER, noisy(rows(), 0.1)))))
    errors = [line.summary.p90_error for key, line in fits.items() if key.startswith("all_to_all/")]
    assert collective_costs(fits)["all_to_all"].spread == max(errors)


def test_one_size_is_refused(tmp_path):
    path = write(tmp_path / "t.csv", HEADER, [row for row in rows() if row[2] in (256, 2**22)])
    with pytest.raises(InputError, match="1 configurations cannot determine 2 coefficients"):
        dict(fit_collectives(read_collectives(path)))
