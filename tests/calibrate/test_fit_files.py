"""A fit as files: they can be read, they say what they rest on, and nothing else in a device's file changes."""

import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from planner import files
from planner.calibrate.coefficients import GENERIC
from planner.calibrate.fit_files import (
    PublishedFit,
    replace_sustained_rates,
    sustained_rates,
    write_fit,
)
from planner.calibrate.framework_facts import FRAMEWORKS
from planner.calibrate.framework_fit import linearised_fit
from planner.calibrate.timed_cases import machines_of_cases, timed_cases
from planner.errors import InputError
from planner.specs.framework.software import Software
from planner.specs.hardware.profile import Profile
from planner.specs.library import find_file, read_named, shipped_names
from planner.workflows import evidence
from tests.calibrate.made_cases import grid, measured, truth

DATE = "2026-01-02"


@pytest.fixture(scope="module")
def made():
    cases = measured(grid("one"), truth(passes=1.4))
    found = linearised_fit(cases, machines_of_cases(cases)).fitted_to()
    off = np.zeros(len(cases))
    return PublishedFit(cases, found, off, off, off, {"nemo": 0.1, GENERIC: 0.2})


def test_a_file_reads_back_and_says_its_rows(made, tmp_path):
    paths = write_fit(made, tmp_path, DATE)
    boards = {"h100-80gb.yaml", "h800.yaml", "torchtitan-h100-500w.yaml"}
    assert {path.name for path in paths} == {"generic.yaml", "nemo.yaml", *boards}
    nemo = files.read(tmp_path / "software/nemo.yaml", Software)
    assert (nemo.spread, nemo.fitted["time"].rows, nemo.fitted["time"].sources) == (0.1, 30, ("one",))
    assert nemo.provenance.date == DATE
    assert nemo.accounting == FRAMEWORKS["nemo"].accounting


def test_only_the_pace_of_a_device_changes(made):
    text = files.read_text(find_file("h100-80gb", Profile))
    new = replace_sustained_rates(text, {"bf16": 0.5, "fp8": 0.25})
    assert files.parse(new, Profile, "new").rates.sustained == {"bf16": 0.5, "fp8": 0.25}
    assert [line for line in new.splitlines() if "sustained" not in line] == [
        line for line in text.splitlines() if "sustained" not in line
    ]
    assert replace_sustained_rates(new, {"bf16": 0.5, "fp8": 0.25}) == new


def test_a_device_without_rates_gets_those_of_its_pace_alone():
    new = replace_sustained_rates(files.read_text(find_file("h20", Profile)), {"bf16": 0.75})
    rates = files.parse(new, Profile, "new").rates
    assert rates.sustained == {"bf16": 0.75} and not rates.gemm and rates.source == "published"
    assert replace_sustained_rates(new, {"bf16": 0.75}) == new


def test_boards_of_a_chip_get_its_pace(made):
    found = sustained_rates(made)
    assert found["h800"] == found["h100-80gb"] and found["h100-80gb"]["bf16"] == pytest.approx(0.85, rel=0.1)


def test_rows_that_tell_nothing_of_time_are_not_fitted():
    from dataclasses import replace

    one = grid("one")[0]
    odd = [replace(one, seconds=None), replace(one, oom=True), replace(one, settings_text="check: rows differ")]
    assert timed_cases([one, *odd]) == [one]


def test_a_folder_that_tells_nothing_is_refused(tmp_path):
    with pytest.raises(InputError, match="folder"):
        evidence.holds_published_records(tmp_path / "none")
    with pytest.raises(InputError, match="no table of matrix products"):
        evidence.calibrate_tables(tmp_path, "h100-80gb", None)
    with pytest.raises(InputError, match="the device of these tables is not given"):
        evidence.calibrate_tables(tmp_path, None, None)


def test_without_scipy_the_fix_is_said(tmp_path, monkeypatch):
    from tests.calibrate.generated_tables import gemm_rows, write

    known = {"share": 0.7, "m0": 30.0, "n0": 20.0, "k0": 100.0, "launch_us": 4.0}
    write(tmp_path / "gemm.csv", ("m", "n", "k", "latency"), gemm_rows(known))
    monkeypatch.setitem(sys.modules, "scipy", None)  # as if it were not installed
    for calibrate in (
        lambda: evidence.calibrate_published(tmp_path, None),
        lambda: evidence.calibrate_tables(tmp_path, "h100-80gb", None),
    ):
        with pytest.raises(InputError, match="needs scipy, which is not installed") as caught:
            calibrate()
        assert caught.value.fix == "pip install '.[calibrate]' in the folder of planner's source"


@pytest.mark.slow
def test_tables_become_a_profile(tmp_path):
    from tests.calibrate.generated_tables import gemm_rows, write

    known = {"share": 0.7, "m0": 30.0, "n0": 20.0, "k0": 100.0, "launch_us": 4.0}
    thin = [(m, n, k, 2 * (m * n + n * k + m * k) / (0.8 * 3350e9) * 1e3 + 0.003)
            for m in (1, 8, 16) for n in (8192, 16384, 32768) for k in (8192, 16384)]  # fmt: skip
    rows = [(m, n, k, ms * 1000 / 989.4) for m, n, k, ms in gemm_rows(known)]
    write(tmp_path / "gemm.csv", ("m", "n", "k", "latency"), [*rows, *thin])
    write(tmp_path / "other.csv", ("a", "b"), [(1, 2)])
    target = tmp_path / "made.yaml"
    made, path = evidence.calibrate_tables(tmp_path, "h100-80gb", target)
    assert path == target and made.unused == ("other.csv",)
    profile = files.read(target, Profile)
    assert profile.rates.gemm["bf16"].share == pytest.approx(0.7, rel=0.02)
    assert profile.rates.memory_share == pytest.approx(0.8, rel=0.05)
    assert {"gemm/bf16", "memory"} <= set(profile.rates.fitted)


def test_the_verb_decides_by_the_columns(tmp_path):
    from planner.cli.app import app

    (tmp_path / "gemm.csv").write_text("m,n,k,latency\n")
    result = CliRunner().invoke(app, ["calibrate", str(tmp_path), "--leave-out", "one"])
    assert (
        isinstance(result.exception, InputError)
        and "these are measured tables, not published sources" in result.exception.message
    )


@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_a_shipped_framework_says_what_it_rests_on(name):
    assert name in shipped_names(Software)
    shipped = read_named(name, Software)[0]
    fitted = shipped.fitted["time"]
    assert shipped.name == name and shipped.provenance.note and fitted.sources and fitted.date
    assert 0.03 < shipped.spread < 1.0 and fitted.rows > 0
    assert 0.5 < shipped.timing.kernels < 1.5 and shipped.timing.step_ms < 200


@pytest.mark.soak
def test_shipped_frameworks_are_as_good_as_they_say(shared):
    """The median error of each source's steps, as its framework's file states it for all of them."""
    from planner.published.predict_cases import predict_cases
    from planner.published.read_published import read_published

    cases = timed_cases(read_published(shared / "published")[0])
    made = predict_cases(cases)
    for name in FRAMEWORKS:
        errors = [abs(p.seconds / c.seconds - 1) for p, c in zip(made, cases, strict=True) if c.software == name]
        stated = read_named(name, Software)[0].fitted["time"]
        if name != GENERIC and len(errors) == stated.rows:
            assert np.median(errors) == pytest.approx(stated.median_error, abs=0.03)
