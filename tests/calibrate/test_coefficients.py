"""Knobs are named, positive, and those that a record depends on."""

from dataclasses import replace

import numpy as np
import pytest

from planner.calibrate.coefficients import (
    COMMON,
    GENERIC,
    NOT_SHARED,
    SAME_CHIP,
    CoefficientName,
    coefficients_of_cases,
    sustained_rate_of,
    with_coefficients,
    with_sustained_rates,
)
from planner.calibrate.framework_fit import HELD_WIDTH, prior_covariance
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.device_rates import DeviceRates
from planner.specs.hardware.profile import Profile
from planner.specs.library import read_named, shipped_names
from tests.calibrate.made_cases import case


def test_another_frameworks_values_change_nothing():
    assert (
        with_coefficients(TimingCoefficients(), "nemo", {CoefficientName("fsdp", "passes"): 3.0})
        == TimingCoefficients()
    )


def test_a_row_without_experts_tells_nothing_of_them():
    told = {coefficient.name for coefficient in coefficients_of_cases([case(0, "one")])}
    assert not told & {"experts", "expert_us", "ep_exposed", "imbalance", "cast", "tp_exposed", "pp_exposed"}
    assert "pp_exposed" in {each.name for each in coefficients_of_cases([case(0, "one", pp=2)])}


def test_what_no_framework_determines_is_one_value_for_all():
    assert {each.owner for each in coefficients_of_cases([case(0, "one")]) if each.name in COMMON} == {GENERIC}
    timing = with_coefficients(TimingCoefficients(), "nemo", {CoefficientName(GENERIC, "step_ms"): 5.0})
    assert timing.step_ms == 5.0


def test_a_trait_of_one_framework_is_not_common_to_all():
    shared = {coefficient.name for coefficient in coefficients_of_cases([replace(case(0, "one"), software=GENERIC)])}
    assert not shared & set(NOT_SHARED)


def test_boards_with_one_chip_share_its_pace():
    for board, (chip, _) in SAME_CHIP.items():
        assert board in shipped_names(Profile) and chip in shipped_names(Profile)
        assert (
            sustained_rate_of(case(0, "one", device=board))
            == sustained_rate_of(case(0, "one", device=chip))
            == CoefficientName(chip, "bf16")
        )
    rates = with_sustained_rates(
        DeviceRates(source="fitted", spread=0.1), "h800", {CoefficientName("h100-80gb", "bf16"): 0.8}
    )
    assert rates.sustained == {"bf16": 0.8}


def test_shipped_boards_of_one_chip_sustain_the_same():
    for board, (chip, share) in SAME_CHIP.items():
        mine, other = (read_named(name, Profile)[0].rates for name in (board, chip))
        if mine and other:
            scaled = {dtype: pytest.approx(rate * share, rel=1e-3) for dtype, rate in other.sustained.items()}
            assert mine.sustained == scaled, f"{board} and {chip}"


def test_what_one_chip_sustains_in_two_precisions_is_tied_and_nothing_else_is():
    names = [CoefficientName(owner, name) for owner in ("h100-80gb", "b200") for name in ("bf16", "fp8")]
    names.append(CoefficientName("nemo", "kernels"))
    widths = np.array([0.15, 0.15, 0.15, HELD_WIDTH, 0.07])
    covariance = prior_covariance(names, widths)
    assert np.diag(covariance) == pytest.approx(widths**2)
    assert np.linalg.eigvalsh(covariance).min() > 0
    tied = covariance - np.diag(np.diag(covariance))
    assert tied[0, 1] == tied[1, 0] > 0
    assert np.count_nonzero(tied) == 2  # a rate that is held is known, whatever the other one is
