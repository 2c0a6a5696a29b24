"""Batches of samples with images and sound: what the module with the loss reads, and the items of encoders."""

import re
from collections.abc import Mapping
from pathlib import Path

from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.model import Model
from planner.specs.workload.items import Size, input_count
from planner.specs.workload.length_sources import SampleMix, SamplesFile, Workload
from planner.specs.workload.sample_sizes import SizedSample
from planner.specs.workload.samples import ReadersByItem, SampleBatch, batch_starts, end_of_batches, make_batch
from planner.specs.workload.sized_samples import SampleBlock, SizedSamples, open_samples

MIX = re.compile(r"(\d{1,9}(?:\.\d+)?):(\d{1,9}(?:\.\d+)?)")


def has_samples(workload: Workload) -> bool:
    """Whether the workload says its samples with their images and sound."""
    return isinstance(workload.lengths, SamplesFile | SampleMix)


def with_mix(workload: Workload, mix: str) -> Workload:
    """The workload with another mix, given as `9:1`: multimodal samples to text-only ones. Raises InputError."""
    given = workload.lengths
    if not isinstance(given, SampleMix):
        fix = "say workload.lengths: {from: sample_mix, text: ..., images: ...} in the job"
        raise InputError("the job's samples are not drawn, and have the mix that they have", where="--mix", fix=fix)
    found = MIX.fullmatch(mix.strip())
    if not found:
        raise InputError(f"`{mix}` is no mix", where="--mix", fix="multimodal to text-only samples, as 9:1")
    return with_fields(workload, lengths=with_fields(given, multimodal=float(found[1]), text_only=float(found[2])))


def read_sample_batches(
    workload: Workload, model: Model, loss: str, span: tuple[int, int], seed: int, base: Path
) -> list[SampleBatch]:
    """Consecutive batches from a sample on; `span`: their number, and that sample. Raises InputError."""
    count, first = span
    block = SampleBlock(first, end_of_batches(workload, count, first) - first)
    samples = open_sample_data(workload, model, loss, seed, base, block)
    starts = batch_starts(workload, count, first, samples.count)
    return [sample_batch(workload, model, loss, samples, start) for start in starts]


def open_sample_data(
    workload: Workload, model: Model, loss: str, seed: int, base: Path, block: SampleBlock
) -> SizedSamples:
    """The samples of a workload; `block`: of those that are drawn at once. Raises InputError, also where the job
    gives other modules items of their own.
    """
    if workload.streams:
        fix = "leave workload.streams out, or give lengths from a file"
        raise InputError("samples say their images and sound themselves", where="workload.streams", fix=fix)
    return open_samples(workload, model, loss, seed, base, block)


def sample_batch(workload: Workload, model: Model, loss: str, samples: SizedSamples, start: int) -> SampleBatch:
    """The batch from a sample on. `max_tokens` counts what the module `loss` reads, outputs of encoders among its
    tokens, `max_inputs` what encoders read. Raises InputError.
    """
    sized = {number: samples.sized(number) for number in range(start, start + workload.batch_rows)}
    too_large = {at for at, each in sized.items() if exceeds_inputs(each, workload.max_inputs, model)}
    batch = make_batch(workload, {at: each.tokens for at, each in sized.items()}, start, too_large)
    return with_items(batch, sized, samples, model, loss)


def exceeds_inputs(sample: SizedSample, most: Mapping[str, int], model: Model) -> bool:
    """Whether a sample has more patches or frames than these, by encoder."""
    return any(
        sum(input_count(model.modules[name], size) for size in sample.items.get(name, ())) > limit
        for name, limit in most.items()
    )


def with_items(
    batch: SampleBatch, sized: Mapping[int, SizedSample], samples: SizedSamples, model: Model, loss: str
) -> SampleBatch:
    """The batch with the items of encoders that its samples read, numbered over all samples of the data."""
    encoders = [name for name in model.modules if name != loss]
    streams: dict[str, dict[int, Size]] = {name: {} for name in encoders}
    feeds: dict[str, dict[str, ReadersByItem]] = {name: {loss: {}} for name in encoders}
    left_out: dict[str, tuple[int, ...]] = {}
    for name in encoders:
        numbered = {
            sample: enumerate(sizes, samples.first_item(name, sample))
            for sample, each in sized.items()
            if (sizes := each.items.get(name, ()))
        }
        for sample in (sample for sample in batch.items if sample in numbered):
            for at, size in numbered[sample]:
                streams[name][at], feeds[name][loss][at] = size, (sample,)
        lost = tuple(at for sample in batch.dropped for at, _ in numbered.get(sample, ()))
        left_out |= {name: lost} if lost else {}
    return SampleBatch(batch.items, batch.dropped, streams, feeds, left_out)
