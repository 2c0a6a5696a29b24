"""Known coefficients come back: exactly, through noise, past outliers. What a table cannot tell is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.calibrate.kernel_fits import fit_gemm, read_gemm
from planner.errors import InputError
from tests.calibrate.generated_tables import PEAK, gemm_rows, noisy, write
from tests.examples import examples

HEADER = ("m", "n", "k", "latency")
KNOWN = {"share": 0.8, "m0": 60.0, "n0": 300.0, "k0": 150.0, "launch_us": 6.0}


def fitted(tmp_path, rows):
    return fit_gemm(read_gemm(write(tmp_path / "gemm.csv", HEADER, rows)), PEAK)


@pytest.mark.slow
@examples(25)
@given(st.tuples(st.floats(0.05, 0.85), st.floats(0, 500), st.floats(0, 2000), st.floats(0, 500), st.floats(0, 50)))
def test_known_coefficients_come_back(tmp_path_factory, numbers):
    known = dict(zip(KNOWN, numbers, strict=True))
    gemm = fitted(tmp_path_factory.mktemp("gemm"), gemm_rows(known))
    assert gemm.values == pytest.approx(known, rel=1e-3, abs=0.1)
    assert gemm.values["share"] == pytest.approx(known["share"], rel=1e-4)
    assert gemm.summary.p90_error < 1e-4
    assert not gemm.rejected_rows


def test_noise_moves_them_little_and_is_reported(tmp_path):
    gemm = fitted(tmp_path, noisy(gemm_rows(KNOWN), 0.05))
    assert gemm.rounded["share"] == pytest.approx(0.8, rel=0.04)
    assert gemm.summary.median_error == pytest.approx(0.05 * 0.6745, rel=0.35)  # the median of a normal's size
    assert gemm.summary.left_out_error == pytest.approx(gemm.summary.median_error, rel=0.6)


@pytest.mark.parametrize("factor", [4, 30, 1000, 1 / 1000])
def test_outliers_do_not_move_them(tmp_path, factor):
    rows = gemm_rows(KNOWN)
    bad = [(*row[:-1], row[-1] * factor) if index % 14 == 3 else row for index, row in enumerate(rows)]
    gemm = fitted(tmp_path, bad)
    assert gemm.rounded["share"] == pytest.approx(0.8, rel=0.02)
    named = [f":{index + 2}: " for index in range(len(rows)) if index % 14 == 3]
    if factor in (1000, 1 / 1000):  # the unit was wrong: named and left out, each of them and no other
        assert len(gemm.rejected_rows) == len(named)
        assert all(line in reason for line, reason in zip(named, gemm.rejected_rows, strict=True))
        assert gemm.summary.rows == len(rows) - len(named)
        assert gemm.values == pytest.approx(KNOWN, rel=1e-3)
    else:
        assert not gemm.rejected_rows


def test_a_coefficient_that_the_table_cannot_tell_is_held_and_named(tmp_path):
    known = {**KNOWN, "m0": 0.0}
    gemm = fitted(tmp_path, gemm_rows(known, tokens=(4096,)))
    assert gemm.summary.held == ("m0",)
    assert gemm.rounded["m0"] == 0
    assert gemm.values == pytest.approx(known, rel=1e-3)


def test_a_launch_that_no_product_feels_is_held(tmp_path):
    gemm = fitted(tmp_path, gemm_rows(KNOWN, sizes=(8192, 16384, 32768, 65536), tokens=(8192, 16384, 32768, 65536)))
    assert "launch_us" in gemm.summary.held
    assert gemm.rounded["share"] == pytest.approx(0.8, rel=1e-3)


def test_too_few_shapes_are_refused(tmp_path):
    with pytest.raises(InputError, match="4 configurations cannot determine 5 coefficients"):
        fitted(tmp_path, gemm_rows(KNOWN, sizes=(512, 1024), tokens=(2048,)) * 3)  # what repeats tells nothing new
    with pytest.raises(InputError, match="0 configurations"):
        fitted(tmp_path, gemm_rows(KNOWN, tokens=(1, 2, 4)))


def test_small_shapes_are_told_apart_and_fit_nothing(tmp_path):
    small = [(8, 1024, 1024, 3.0), (16, 2048, 2048, 3.0)]
    gemm = fitted(tmp_path, [*gemm_rows(KNOWN), *small])
    assert gemm.values == pytest.approx(KNOWN, rel=1e-3)
    assert gemm.summary.rows == len(gemm_rows(KNOWN))
    assert gemm.summary.outside_error > 0.9


def test_order_and_unit_of_time_are_of_no_matter(tmp_path):
    rows = noisy(gemm_rows(KNOWN), 0.1)
    assert fitted(tmp_path, rows).rounded == fitted(tmp_path, rows[::-1]).rounded


def test_one_dtype_of_one_system_is_read(tmp_path):
    rows = [(1, 1, 1, 1, "fp8", "a"), (2, 2, 2, 2, "bfloat16", "a"), (3, 3, 3, 3, "fp8", "b")]
    path = write(tmp_path / "t.csv", (*HEADER, "gemm_dtype", "system"), rows)
    assert read_gemm(path, "fp8", "a").numbers["m"].tolist() == [1]
    assert read_gemm(path, "bf16", "a").numbers["m"].tolist() == [2]
