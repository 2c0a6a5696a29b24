"""Shipped jobs of several modules: each has work for every module, and keeps nearly all samples."""

import pytest

from planner.specs import library
from planner.specs.inputs import JobOptions, load_job
from planner.specs.job import Job
from planner.specs.workload.items import input_count, item_outputs
from planner.specs.workload.length_sources import SampleMix

JOBS = [
    name
    for name in library.shipped_names(Job)
    if isinstance(library.read_named(name, Job)[0].workload.lengths, SampleMix)
]
CLUSTERS = {"h200x8", "a100x32", "h100x16", "h100x17", "h100x128", "h100x1536", "h100x2048", "h100x3072"}


def test_there_are_some_of_7_27_70_72_and_175_billion_on_each_kind_of_cluster() -> None:
    jobs = {name: library.read_named(name, Job)[0] for name in JOBS}
    assert len({job.model for job in jobs.values()}) >= 5
    assert {job.cluster for job in jobs.values()} == CLUSTERS


@pytest.mark.parametrize("kind", ["", "-overlap", "-two-encoders"])
@pytest.mark.parametrize(("ranks", "micro_batches"), [(1536, 32), (2048, 24), (3072, 16)])
def test_strong_scaling_has_the_micro_batches_and_tokens_of_its_paper(
    ranks: int, micro_batches: int, kind: str
) -> None:
    inputs = load_job(f"optimus-vit22b-gpt175b-h100x{ranks}{kind}", JobOptions())
    llm, (batch,) = inputs.fixed_of("llm"), inputs.batches
    assert llm.tp and llm.pp and llm.micro_batch
    assert inputs.cluster.size == ranks == llm.tp * llm.pp * (1536 // (micro_batches * llm.micro_batch))
    assert len(batch.items) == 1536 and {*batch.items.values()} == {2048}
    assert len(batch.streams) == 1 + (kind == "-two-encoders")
    for name, sizes in batch.streams.items():
        patches = {input_count(inputs.model.modules[name], size) for size in sizes.values()}
        assert len(sizes) == 1536 and patches == {2048} and inputs.fixed_of(name).ranks == llm.ranks


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
