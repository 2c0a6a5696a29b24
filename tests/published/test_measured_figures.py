"""Seconds and bytes from what is printed; figures that cannot be are refused."""

from dataclasses import replace

import pytest

from planner.published.measured_figures import FlopsCounting, measured_figures, step_flops
from planner.published.record_files import UnusableRecord
from planner.published.record_setup import record_setup
from planner.published.trained_model import model_of_record
from tests.published.made_records import record

PEAK = 989.4e12
USUAL = FlopsCounting()


def read(counting=USUAL, **cells):
    each = record(**cells)
    module = model_of_record(each).module
    return measured_figures(each, module, record_setup(each, module, "h100-80gb", "nemo", 8)[0], counting, PEAK)


def test_each_figure_gives_the_same_seconds():
    tokens = 16 * 8192
    figures = {
        "tokens_per_s_per_gpu": tokens / 2 / 16,
        "tokens_per_s_total": tokens / 2,
        "samples_per_s": 8,
        "step_time_s": 2,
    }
    for name, value in figures.items():
        assert read(**{"step_time_s": "", name: str(value)}).seconds == pytest.approx(2)
    assert read(**{name: str(value) for name, value in figures.items()}).seconds == pytest.approx(2)


def test_flops_by_the_sources_count():
    each = record()
    module = model_of_record(each).module
    made, _ = record_setup(each, module, "h100-80gb", "nemo", 8)
    for counting in (FlopsCounting("full"), FlopsCounting("causal"), FlopsCounting("full", True)):
        rate = step_flops(module, made, *counting) / 2 / 16 / 1e12
        assert read(counting, step_time_s="", tflops_per_gpu=str(rate)).seconds == pytest.approx(2)
        share = step_flops(module, made, counting.attention, False) / 2 / 16 / PEAK
        assert read(counting, step_time_s="", mfu_pct=str(100 * share)).seconds == pytest.approx(2)


def test_flops_of_published_pairs():
    """Tokens and TFLOP/s of one record: full attention in NeMo 24.07, causal in Megatron-Bridge (their summaries)."""
    for model, tokens, rate, attention in (
        ("LLAMA3_70B", 1533, 738, "full"), ("LLAMA3_8B", 12036, 697, "full"), ("LLAMA3_70B", 4224, 1892, "causal"),
    ):  # fmt: skip
        each = record(model=model)
        module = model_of_record(each).module
        made, _ = record_setup(each, module, "h100-80gb", "nemo", 8)
        per_token = step_flops(module, made, attention, False) / made.batch / made.seq
        assert per_token * tokens / 1e12 == pytest.approx(rate, rel=0.01)


def test_hardware_flops_count_a_second_forward():
    each = record(recompute="full")
    module = model_of_record(each).module
    full, _ = record_setup(each, module, "h100-80gb", "nemo", 8)
    none = replace(full, full_recompute=0.0)
    assert step_flops(module, full, "full", False) == step_flops(module, none, "full", True)
    assert 1.2 < step_flops(module, full, "full", True) / step_flops(module, none, "full", True) < 4 / 3


@pytest.mark.parametrize(
    "cells",
    [
        {"mfu_pct": "140"},
        {"mfu_pct": "0.2"},
        {"hfu_pct": "101"},
        {"mfu_pct": "50", "hfu_pct": "40"},
        {"tflops_per_gpu": "1200", "step_time_s": ""},
        {"tokens_per_s_per_gpu": "8192"},  # twice what the step's seconds say
        {"step_time_s": "0.002"},  # milliseconds taken for seconds
        {"step_time_s": "2000"},  # or seconds for milliseconds
        {"step_time_s": "-1"},
        {"peak_mem": "70", "mem_unit": "bytes"},
        {"peak_mem": "70000", "mem_unit": "GB"},
    ],
)
def test_impossible_figures_are_refused(cells):
    with pytest.raises(UnusableRecord) as why:
        read(**cells)
    assert why.value.reason == "impossible figures"


@pytest.mark.parametrize("printed", ["50", "1200"])
def test_tflops_that_contradict_the_seconds_are_a_doubt_and_no_veto(printed):
    """Seconds are what was measured, and TFLOP/s what somebody counted."""
    said, silent = read(tflops_per_gpu=printed), read()
    assert said.seconds == silent.seconds == 2.0
    assert not silent.doubts and f"{printed} as printed" in said.doubts[0]


def test_rounding_is_no_disagreement():
    """0.9 s printed, 0.85 s meant."""
    exact = 16 * 8192 / 16 / 0.86
    assert read(step_time_s="0.9", tokens_per_s_per_gpu=f"{exact:.2f}", n_gpus="16").seconds == 0.9


def test_nothing_measured_is_said():
    with pytest.raises(UnusableRecord, match="nothing measured"):
        read(step_time_s="", status="no result")


@pytest.mark.parametrize(
    ("value", "unit", "amount"), [("70", "GB", 70e9), ("70", "GiB", 70 * 2**30), ("70000000000", "bytes", 70e9)]
)
def test_memory_units(value, unit, amount):
    assert read(peak_mem=value, mem_unit=unit).memory_bytes == pytest.approx(amount)


def test_out_of_memory_has_no_seconds_and_a_peak_only_where_it_is_called_one():
    for failed in ("crashed", "NCCL error", "killed after 3 steps", "failed"):
        with pytest.raises(UnusableRecord, match="the run failed"):
            read(status=failed)
    got = read(status="oom", step_time_s="", peak_mem="79", mem_unit="GB", mem_kind="as noted")
    assert (got.oom, got.seconds, got.memory_bytes) == (True, None, None)
    assert read(status="OOM", peak_mem="79", mem_unit="GB", mem_kind="peak").memory_bytes == 79e9


def test_whose_memory():
    assert read(peak_mem="7", mem_unit="GB", mem_kind="rank that writes tensorboard").memory_rank == "last"
    assert read(peak_mem="7", mem_unit="GB", mem_kind="rank-0 peak").memory_rank == "first"
    assert read(peak_mem="7", mem_unit="GB", mem_kind="max over GPUs").memory_rank == "worst"
