"""Shipped jobs of several modules: each has work for every module, and keeps nearly all samples."""

import pytest

from planner.specs import library
from planner.specs.inputs import JobOptions, load_job
from planner.specs.job import Job
from planner.specs.workload.items import item_outputs
from planner.specs.workload.length_sources import SampleMix

JOBS = [name for name in library.shipped_names(Job) if library.read_named(name, Job)[0].strategy == "modality_layout"]


def test_there_are_some_of_7_27_70_and_72_billion_on_each_kind_of_cluster() -> None:
    jobs = {name: library.read_named(name, Job)[0] for name in JOBS}
    assert len({job.model for job in jobs.values()}) >= 4
    assert {"h200x8", "a100x32", "h100x16", "h100x17", "h100x128"} == {job.cluster for job in jobs.values()}


@pytest.mark.parametrize("name", JOBS)
def test_each_module_has_work_and_samples_keep_their_bounds(name: str) -> None:
    inputs = load_job(name, JobOptions())
    (batch,), workload = inputs.batches, inputs.job.workload
    mix = workload.lengths
    assert isinstance(mix, SampleMix)
    assert {*inputs.model.modules} == {inputs.module, *batch.streams} and all(batch.streams.values())
    assert len(batch.items) >= 0.95 * workload.batch_rows  # the others are longer than max_tokens
    share = mix.multimodal / (mix.multimodal + mix.text_only)
    feeds = [by for targets in batch.feeds.values() for by in targets.values()]
    readers = {item for by in feeds for read in by.values() for item in read}
    assert len(readers) == pytest.approx(share * workload.batch_rows, abs=0.06 * workload.batch_rows)


@pytest.mark.parametrize(("tokens", "text"), [(2048, 1248), (4096, 3296)])
def test_two_images_fit_beside_the_text_of_the_job_on_17_gpus(tokens: int, text: int) -> None:
    """Images have at most 400 tokens each: its comment says both lengths."""
    job, path = library.read_named("qwen3.5-27b-h100x17", Job)
    assert isinstance(job.workload.lengths, SampleMix)
    assert f"text {text} and max_tokens {tokens}" in path.read_text() or job.workload.max_tokens == tokens
    inputs = load_job("qwen3.5-27b-h100x17", JobOptions())
    vision, images = inputs.model.modules["vision"], inputs.batches[0].streams["vision"]
    outputs = [item_outputs(vision, size) for size in images.values()]
    assert max(outputs) <= 400 and not inputs.batches[0].dropped
