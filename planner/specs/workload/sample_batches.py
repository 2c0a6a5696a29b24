"""Batches of samples with images and sound: what the module with the loss reads, and the items of encoders."""

import os
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.model import Model
from planner.specs.workload.items import Size, input_count
from planner.specs.workload.length_sources import SampleMix, SamplesFile, Workload
from planner.specs.workload.sample_folder import open_sample_folder, read_sample_folder, require_widths
from planner.specs.workload.sample_mix import draw_samples
from planner.specs.workload.sample_records import read_sample_file
from planner.specs.workload.sample_sizes import SizedSample, sample_readers, sized_sample
from planner.specs.workload.samples import ReadersByItem, SampleBatch, end_of_batches, make_batches, read_samples

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
    """Consecutive batches from a sample on; `span`: their number, and that sample. `max_tokens` counts what the module
    `loss` reads, outputs of encoders among its tokens, `max_inputs` what encoders read. Raises InputError.
    """
    count, first = span
    if workload.streams:
        fix = "leave workload.streams out, or give lengths from a file"
        raise InputError("samples say their images and sound themselves", where="workload.streams", fix=fix)
    sized = sized_samples(workload, model, loss, end_of_batches(workload, count, first), seed, base)
    too_large = {at for at, each in enumerate(sized) if exceeds_inputs(each, workload.max_inputs, model)}
    batches = make_batches(workload, [each.tokens for each in sized], count, first, too_large)
    return [with_items(batch, sized, model, loss) for batch in batches]


def sized_samples(workload: Workload, model: Model, loss: str, end: int, seed: int, base: Path) -> list[SizedSample]:
    """The samples of the data in the model's units: all of a file, or the first `end` of a folder, or drawn. Raises
    InputError.
    """
    given = workload.lengths
    readers = sample_readers(model, loss, "workload.lengths")
    if isinstance(given, SamplesFile) and os.path.isdir(base / given.path):
        folder = open_sample_folder(base / given.path)
        require_widths(folder, model.modules)
        return [sized_sample(readers, sample, where) for sample, where in read_sample_folder(folder, end)]
    if isinstance(given, SamplesFile):
        return [sized_sample(readers, sample, where) for sample, where in read_sample_file(base / given.path)]
    assert isinstance(given, SampleMix), "has_samples says so"
    text = read_samples(with_fields(workload, lengths=given.text), end, seed, base)[:end]
    return [sized_sample(readers, sample, "workload.lengths") for sample in draw_samples(given, text, seed)]


def exceeds_inputs(sample: SizedSample, most: Mapping[str, int], model: Model) -> bool:
    """Whether a sample has more patches or frames than these, by encoder."""
    return any(
        sum(input_count(model.modules[name], size) for size in sample.items.get(name, ())) > limit
        for name, limit in most.items()
    )


def with_items(batch: SampleBatch, sized: Sequence[SizedSample], model: Model, loss: str) -> SampleBatch:
    """The batch with the items of encoders that its samples read, numbered over all samples of the data."""
    encoders = [name for name in model.modules if name != loss]
    streams: dict[str, dict[int, Size]] = {name: {} for name in encoders}
    feeds: dict[str, dict[str, ReadersByItem]] = {name: {loss: {}} for name in encoders}
    left_out: dict[str, tuple[int, ...]] = {}
    for name in encoders:
        firsts = [0, *accumulate(len(each.items.get(name, ())) for each in sized)]
        for sample in batch.items:
            for at, size in enumerate(sized[sample].items.get(name, ()), firsts[sample]):
                streams[name][at], feeds[name][loss][at] = size, (sample,)
        lost = [at for sample in batch.dropped for at in range(firsts[sample], firsts[sample + 1])]
        left_out |= {name: tuple(lost)} if lost else {}
    return SampleBatch(batch.items, batch.dropped, streams, feeds, left_out)
