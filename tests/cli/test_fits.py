"""`planner fits`: yes or no with its chance, stage by stage, and the smallest change that fits."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from planner import pipeline
from planner.cli.app import app
from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.strategies.static.memory_fit import memory_fit_of_job
from planner.strategies.static.nearest_change import CHANGED_FIRST
from planner.units import GIB
from tests.static_jobs import for_software, small_cluster, static_job

K2 = "k2-65b-h100x480"
KINDS = ("weights", "gradients", "optimizer", "gathered", "activations", "logits", "workspace", "buffers", "context")


def invoke(*words):
    return CliRunner().invoke(app, ["fits", *words])


def k2(**fixed):
    """K2's job with another layout."""
    inputs = load_job(K2, JobOptions())
    layout = with_fields(inputs.job.fix.layouts["llm"], **fixed)
    job = with_fields(inputs.job, fix=with_fields(inputs.job.fix, layouts={"llm": layout}))
    return memory_fit_of_job(replace(inputs, job=job))


def test_k2_fits_with_four_stages():
    """LLM360 K2 trained with TP 8, PP 4 and a distributed optimizer on 80 GB (arXiv 2501.07124)."""
    done = invoke(K2, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["fits"] and said["memory"]["chance"] < 0.05 and said["change"] is None
    assert len(said["stages"]) == 4
    assert all(kind in stage for stage in said["stages"] for kind in KINDS)


@pytest.mark.slow
def test_k2_does_not_fit_with_one_stage():
    """Of 65.3 billion parameters each rank would hold an eighth: 16 bytes of each are more than the device has; under
    ZeRO-1 weights and float32 gradients leave too little for the activations of four sequences.
    """
    plain = k2(pp=1, zero=0)
    assert not plain.fits and plain.fullest.chance > 0.99
    assert plain.stages[0].taken.states > 80e9
    assert not k2(pp=1).fits
    assert k2(pp=1).stages[0].taken.states > 50e9 > k2().stages[0].taken.states


def test_no_is_exit_code_3_and_names_a_change_that_fits(tmp_path):
    job = static_job(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", 8), [8192] * 8, "zero: 0")
    done = invoke(job, "--json")
    assert done.exit_code == 3
    said = json.loads(done.stdout)
    assert not said["fits"] and said["memory"]["chance"] > 0.5
    changed = {"zero": "0", **dict(each.split("=", 1) for each in said["change"]["what"])}
    fixed = ", ".join(f"{name}: {value}" for name, value in changed.items())
    again = static_job(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", 8), [8192] * 8, fixed)
    assert pipeline.fits(again).fits


@pytest.mark.slow
@pytest.mark.parametrize("job", [K2, "llama-3.1-405b-h100x1024", "qwen3-235b-h100x256"])
def test_shipped_layouts_fit(job):
    found = pipeline.fits(job)
    assert found.fits and found.fullest.chance <= 0.05
    assert float(found.fullest.taken.total) == max(float(use.taken.total) for use in found.stages)
    assert float(found.fullest.taken.total) <= found.fullest.allowed < found.device_bytes == 79.1 * GIB


# The fields of a layout that a person may change alone, with their values on eight ranks.
ALONE = {"recompute": ("none", "selective"), "zero": (0, 1, 2, 3), "tp": (2, 4, 8), "cp": (2, 4, 8), "pp": (2, 4, 8)}


def deepspeed_7b(folder, **changed):
    """Llama-2-7B on 8 V100 of 32 GB, one sequence each, under ZeRO-2: what a user of DeepSpeed reported in 2023-10."""
    fixed = {"zero": 2, "tp": 1, "pp": 1, "cp": 1, "micro_batch": 1, "recompute": "full"} | changed
    cluster = small_cluster(folder, "v100-32gb", 8)
    said = ", ".join(f"{name}: {value}" for name, value in fixed.items())
    job = for_software(static_job(folder, "llama-2-7b", cluster, [1024] * 8, said, "dtype: bf16"), "deepspeed")
    return memory_fit_of_job(load_job(job, JobOptions()))


def test_deepspeeds_update_takes_to_the_byte_what_was_reported(tmp_path):
    """28.28 GiB allocated, and 3.14 more asked for: weights whole; masters, moments, gradients in float32, a square
    root and a quotient of an eighth each (LLaMA-Factory, issue 1221). It ran under ZeRO-3.
    """
    found = deepspeed_7b(tmp_path).fullest
    updating = float(found.taken.states + found.taken.update) / GIB
    assert updating == pytest.approx(28.28 + 3.14, rel=0.002)
    assert float(found.taken.update) / GIB >= 3.14 and found.chance > 0.95
    assert deepspeed_7b(tmp_path, zero=3).fits


@pytest.mark.slow
def test_the_smallest_change_is_of_the_field_that_people_change_first(tmp_path):
    """Brute force over changes of one field: of those that fit, the named one is of the first field in the order."""
    found = deepspeed_7b(tmp_path)
    fitting = set()
    for name, values in ALONE.items():
        for value in values:
            with suppress(InputError):
                fitting |= {name} if deepspeed_7b(tmp_path, **{name: value}).fits else set()
    assert {each.split("=")[0] for each in found.change.differences} == {min(fitting, key=CHANGED_FIRST.index)}


def test_stages_that_do_not_fit_are_even_in_the_smallest_change(tmp_path):
    """The change goes back in as it is printed."""
    cluster = small_cluster(tmp_path, "h100-80gb", 24)
    fixed = {"tp": 4, "pp": 3, "micro_batch": 1, "recompute": "full", "stages": "[0-9, 10-59, 60-79]"}

    def of(values):
        said = ", ".join(f"{name}: {value}" for name, value in values.items())
        return memory_fit_of_job(load_job(static_job(tmp_path, "llama-3-70b", cluster, [8192] * 8, said), JobOptions()))

    found = of(fixed)
    assert not found.fits
    changed = dict(each.split("=", 1) for each in found.change.differences)
    assert changed["stages"] != fixed["stages"] and of(fixed | changed).fits


@pytest.mark.slow
def test_chunks_may_run_out_where_segments_do_not_expand(tmp_path):
    """Llama-3-70B's fine-tuning in fp8 on 32 H100: with 5 chunks a rank it ran out in a third to two thirds of runs,
    with 10 it did not (Megatron-Bridge, pull request 3107). Without chunks nothing is said.
    """
    cluster, chances = small_cluster(tmp_path, "h100-80gb", 32), {}
    for vpp in (1, 5, 10):
        fixed = f"tp: 4, pp: 4, vpp: {vpp}, micro_batch: 1, recompute: selective"
        job = static_job(tmp_path, "llama-3-70b", cluster, [4096] * 32, fixed, "zero: 1, dtype: fp8")
        found = memory_fit_of_job(load_job(for_software(job, "nemo"), JobOptions()))
        chances[vpp] = max((use.fragmented_chance for use in found.stages if use.fragmented_chance), default=None)
        assert found.fullest.chance < 0.01
    assert 0.2 < chances[5] < 0.6 and chances[10] < chances[5] - 0.02 and chances[1] is None
    assert "without expandable segments" in invoke(job).stdout
