"""`planner fits`: yes or no with its chance, stage by stage, and the smallest change that fits."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from planner import pipeline
from planner.cli.app import app
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.parallelism import Parallelism
from planner.strategies.static.memory_fit import memory_fit_of_job
from planner.units import GIB
from tests.static_jobs import small_cluster, static_job

K2 = "k2-65b-h100x480"
KINDS = ("weights", "gradients", "optimizer", "gathered", "activations", "logits", "workspace", "buffers", "context")


@pytest.fixture(autouse=True)
def nothing_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


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
    changed = {"zero": "0", **dict(each.split(" ", 1) for each in said["change"]["what"])}
    fixed = ", ".join(f"{name}: {value}" for name, value in changed.items())
    again = static_job(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", 8), [8192] * 8, fixed)
    assert pipeline.fits(again).fits


def test_a_table_for_people():
    done = invoke(K2)
    assert "fits in" in done.stdout and "chance of running out" in done.stdout
    (fullest, *_), rows = pipeline.fits(K2).stages, {line.split("  ")[0] for line in done.stdout.splitlines()}
    held = {kind for kind in KINDS if getattr(fullest.taken, kind)}
    assert {*held, "peak", "allowed"} <= rows and "0.00 GiB" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("job", [K2, "llama-3.1-405b-h100x1024", "qwen3-235b-h100x256"])
def test_shipped_layouts_fit(job):
    found = pipeline.fits(job)
    assert found.fits and found.fullest.chance <= 0.05
    assert float(found.fullest.taken.total) == max(float(use.taken.total) for use in found.stages)
    assert float(found.fullest.taken.total) <= found.fullest.allowed < found.device_bytes == 79.1 * GIB


def test_fewer_ranks_that_hold_a_part_take_more():
    totals = [k2(pp=pp).stages[0].taken.states for pp in (4, 2, 1)]
    assert totals == sorted(totals)
    assert isinstance(load_job(K2, JobOptions()).job.fix.layouts["llm"], Parallelism)
