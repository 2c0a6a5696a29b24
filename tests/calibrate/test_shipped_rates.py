"""The shipped rates are what comes out of the published tables."""

import pytest

from planner.calibrate.kernel_fits import (
    attention_curve,
    fit_attention,
    fit_gemm,
    fit_grouped,
    fit_memory_bandwidth,
    read_attention,
    read_gemm,
    read_grouped,
)
from planner.specs.hardware.device_rates import GemmCurve
from planner.specs.hardware.profile import Profile
from planner.specs.library import read_named, shipped_names

TABLES = {
    "a100-80gb": ("a100_sxm", "sglang_0.5.10", ("128",)),
    "h100-80gb": ("h100_sxm", "vllm_0.24.0", ("64", "128", "192", "256")),
    "h200": ("h200_sxm", "vllm_0.24.0", ("64", "128", "192", "256")),
}


def shipped(name):
    return read_named(name, Profile)[0]


@pytest.mark.parametrize("name", [name for name in shipped_names(Profile) if shipped(name).rates])
def test_each_rate_has_its_peak_and_its_source(name):
    profile = shipped(name)
    assert set(profile.rates.gemm) <= set(profile.device.tflops)
    fitted = profile.rates.fitted
    if profile.rates.gemm and not fitted:  # nobody published a table of it: wide, and the note says what they rest on
        assert profile.rates.spread >= 0.2 and "rates:" in profile.provenance.note
        return
    assert {f"gemm/{dtype}" for dtype in profile.rates.gemm} <= set(fitted)
    assert {f"attention/{size}" for size in profile.rates.attention if size != "any"} <= set(fitted)
    assert all(entry.sources and entry.date for entry in fitted.values())


@pytest.mark.parametrize(
    "name", ["a100-80gb", *(pytest.param(name, marks=pytest.mark.soak) for name in ("h100-80gb", "h200"))]
)
def test_the_shipped_curves_come_out_of_their_tables(shared, name):
    profile, (system, version, sizes) = shipped(name), TABLES[name]
    folder = shared / "data/gpuperf"

    def table(kind):
        return str(folder / f"{system}__{kind}__{version}.csv.gz")

    for dtype, curve in profile.rates.gemm.items():
        assert GemmCurve(**fit_gemm(read_gemm(table("gemm"), dtype), profile.device.tflops[dtype]).rounded) == curve
    memory = fit_memory_bandwidth(read_gemm(table("gemm")), profile.device.memory_gb_per_s)
    assert memory.rounded["share"] == profile.rates.memory_share
    peak = profile.device.tflops["bf16"]
    for size in sizes:
        rows = read_attention(table("context_attention"), int(size))
        assert attention_curve(fit_attention(rows, peak)) == profile.rates.attention[size]


def test_grouped_experts_reach_less_than_products_one_by_one(shared):
    profile = shipped("h200")
    path = shared / "data/gpuperf/h200_sxm__moe__vllm_0.24.0.csv.gz"
    grouped = fit_grouped(read_grouped(str(path)), profile.rates.gemm["bf16"], profile.device.tflops["bf16"])
    assert 0.5 < grouped.values["share"] < 0.8
