"""A record's date is read from whatever states it, and says which attention kernel its software had."""

import pytest

from planner.published.software_vintage import record_fp8_recipe, record_kernel, software_month
from planner.specs.framework.dated_kernels import launches_at_once
from tests.published.made_records import record


@pytest.mark.parametrize(
    ("cells", "month"),
    [
        ({"date_or_version": "2023-10-09"}, "2023-10"),
        ({"date_or_version": "v24.11.1 (2025-06-09) container 24.09"}, "2024-09"),
        ({"date_or_version": "25.09 NeMo Container"}, "2025-09"),
        ({"date_or_version": "NeMo24.07 @2024-08-12"}, "2024-07"),
        ({"date_or_version": "SC21 / arXiv 2104.04473"}, "2021-04"),
        ({"date_or_version": "2024 (torch 1.13, repo 2026-08-21)"}, "2024"),
        ({"date_or_version": "", "source_ref": "arXiv 2205.05198"}, "2022-05"),
        ({"date_or_version": "ASPLOS25", "source_ref": ""}, ""),
    ],
)
def test_months_are_read(cells, month):
    assert software_month(record(**cells)) == month


@pytest.mark.parametrize(
    ("software", "date", "settings", "kernel"),
    [
        ("megatron", "2022-05-10", "", "stored"),
        ("megatron", "2023-09", "", "flash2"),
        ("nemo", "25.09 NeMo Container", "", "cudnn"),
        ("torchtitan", "2024-12", "", "flash2"),
        ("fsdp", "2023-07", "", "flash1"),
        ("fsdp", "2023-07", "attn_impl: triton", "triton"),
        ("megatron", "2026-08-22", "attention-backend=unfused", "stored"),
        ("megatron", "", "", "cudnn"),
    ],
)
def test_kernels_are_of_their_time(software, date, settings, kernel):
    stated = record(date_or_version=date, source_ref="", other_settings=settings)
    assert record_kernel(stated, software) == kernel


@pytest.mark.parametrize(
    ("settings", "recipe"),
    [("float8 rowwise; async TP", "rowwise"), ("float8 tensorwise", "tensorwise"), ("browser, wise", "tensorwise")],
)
def test_recipes_are_named_by_settings(settings, recipe):
    assert record_fp8_recipe(record(other_settings=settings)) == recipe
    assert record_fp8_recipe(record(other_settings=settings, precision="NVFP4")) == "rowwise"


@pytest.mark.parametrize(
    ("software", "date", "at_once"),
    [
        ("nemo", "26.06 NeMo Container", True),
        ("nemo", "26.04.01 NeMo Container", False),
        ("nemo", "", True),
        ("megatron", "2026-08", False),
    ],
)
def test_experts_are_launched_at_once_since_a_month(software, date, at_once):
    assert launches_at_once(software, software_month(record(date_or_version=date, source_ref=""))) is at_once
