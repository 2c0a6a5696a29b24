"""Attention becomes no slower with time, and a software file may say its month instead of its kernel."""

from typing import get_args

import pytest

from planner.specs.base import with_fields
from planner.specs.framework.dated_kernels import GENERATIONS, KERNEL_SHARES, AttentionKernel, attention_kernel
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.software import Software
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.profile import Provenance

MONTHS = [f"{year}-{month:02}" for year in range(2020, 2028) for month in range(1, 13)]
OWN = Software(format=Software.FORMAT, name="megatron", provenance=Provenance(source="ours"), knobs=Knobs(tp=False))


def test_every_kernel_has_a_share():
    assert {*KERNEL_SHARES} == {*get_args(AttentionKernel)}


@pytest.mark.parametrize("framework", [*GENERATIONS, "unheard-of"])
def test_kernels_follow_each_other(framework):
    order = [*get_args(AttentionKernel)]
    places = [order.index(attention_kernel(framework, month)) for month in MONTHS]
    assert places == sorted(places)
    assert attention_kernel(framework) == attention_kernel(framework, MONTHS[-1])


def test_a_year_is_taken_for_its_beginning():
    assert attention_kernel("megatron", "2023") == "flash1"


def test_a_file_says_its_kernel_or_its_month():
    timing = TimingCoefficients(attention=0.5, attention_ampere=0.8)
    said = {
        "": with_fields(OWN, timing=timing),
        "month": with_fields(OWN, timing=timing, month="2023-09"),
        "kernel": with_fields(OWN, timing=timing, month="2026-01", attention_kernel="flash1"),
    }
    found = {name: (each.kernel_timing.attention, each.kernel_timing.attention_ampere) for name, each in said.items()}
    flash1, flash2 = KERNEL_SHARES["flash1"], KERNEL_SHARES["flash2"]
    assert found[""] == (0.5, 0.8)
    assert found["month"] == pytest.approx((0.5 * flash2.hopper, 0.8 * flash2.ampere))
    assert found["kernel"] == pytest.approx((0.5 * flash1.hopper, 0.8 * flash1.ampere))
