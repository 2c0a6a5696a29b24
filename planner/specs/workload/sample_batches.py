"""Batches of samples with images and sound: what the module with the loss reads, and the items of encoders.

Samples are read by number, in the units of the model: of a file, of a folder, or drawn block by block. Items of
encoders are numbered over all samples of the data, so whoever reads a sample is told how many came before.
"""

import os
import re
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, Protocol

from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.model import Model
from planner.specs.workload.items import Size, input_count
from planner.specs.workload.length_sources import LengthsFile, SampleMix, SamplesFile, Workload
from planner.specs.workload.sample_folder import SampleFolder, open_sample_folder, require_widths
from planner.specs.workload.sample_mix import draw_samples, multimodal_before
from planner.specs.workload.sample_records import Sample, read_sample_file
from planner.specs.workload.sample_sizes import SampleReaders, SizedSample, sample_readers, sized_sample
from planner.specs.workload.samples import (
    ReadersByItem,
    SampleBatch,
    batch_starts,
    end_of_batches,
    make_batch,
    read_lengths,
    read_samples,
)

DRAWN = "workload.lengths"  # where errors of samples that are in no file are


class SizedSamples(Protocol):
    """Samples of a job's data by number, in the units of its model."""

    count: int | None  # in the data; None: drawn, without an end

    def sized(self, number: int) -> SizedSample:
        """One sample. Raises InputError where the model cannot read it."""

    def first_item(self, encoder: str, number: int) -> int:
        """The items of an encoder in all samples before this one."""


class SampleBlock(NamedTuple):
    """Which samples are drawn at once: those from `first` on, `size` at a time."""

    first: int
    size: int


def open_samples(
    workload: Workload, model: Model, loss: str, seed: int, base: Path, block: SampleBlock
) -> SizedSamples:
    """The samples that a workload says with their images and sound. `block`: of those that are drawn. Raises
    InputError.
    """
    given = workload.lengths
    readers = sample_readers(model, loss, DRAWN)
    if isinstance(given, SamplesFile) and os.path.isdir(base / given.path):
        folder = open_sample_folder(base / given.path)
        require_widths(folder, model.modules)
        return FolderSamples(folder, readers)
    if isinstance(given, SamplesFile):
        return FileSamples(base / given.path, readers)
    assert isinstance(given, SampleMix), "has_samples says so"
    return DrawnSamples(given, with_fields(workload, lengths=given.text), readers, seed, base, block)


class FileSamples:
    """All samples of a file, kept in memory. Raises InputError for the first that the model cannot read."""

    def __init__(self, path: Path, readers: SampleReaders) -> None:
        self.samples = [sized_sample(readers, sample, where) for sample, where in read_sample_file(path)]
        self.count: int | None = len(self.samples)
        encoders = [name for name in readers.model.modules if name != readers.loss]
        self.firsts = {
            name: [0, *accumulate(len(each.items.get(name, ())) for each in self.samples)] for name in encoders
        }

    def sized(self, number: int) -> SizedSample:
        return self.samples[number]

    def first_item(self, encoder: str, number: int) -> int:
        return self.firsts[encoder][number]


class FolderSamples:
    """Samples of a folder, whose index is mapped into memory: each is read when it is asked for."""

    def __init__(self, folder: SampleFolder, readers: SampleReaders) -> None:
        self.folder, self.readers = folder, readers
        self.count: int | None = len(folder)

    def sized(self, number: int) -> SizedSample:
        return sized_sample(self.readers, self.folder.sample(number), f"{self.folder.path} (sample {number})")

    def first_item(self, encoder: str, number: int) -> int:
        media = self.folder.images if encoder == self.readers.patches else self.folder.clips
        return media.of_sample(number).start if media else 0


class DrawnSamples:
    """Drawn samples, of which one block is kept. All before it are drawn again: the seed fixes the sequence."""

    def __init__(
        self, mix: SampleMix, text: Workload, readers: SampleReaders, seed: int, base: Path, block: SampleBlock
    ) -> None:
        self.mix, self.text, self.readers, self.seed, self.base, self.block = mix, text, readers, seed, base, block
        self.begin, self.samples = 0, list[Sample]()
        self.numbers: dict[str, list[int]] = {}  # by encoder, items before each sample of the block
        given = text.lengths
        lengths = read_lengths(base / given.path, given.column) if isinstance(given, LengthsFile) else None
        self.count: int | None = None if lengths is None else len(lengths)

    def sized(self, number: int) -> SizedSample:
        self.draw_block_of(number)
        return sized_sample(self.readers, self.samples[number - self.begin], DRAWN)

    def first_item(self, encoder: str, number: int) -> int:
        self.draw_block_of(number)
        return self.numbers[encoder][number - self.begin]

    def draw_block_of(self, number: int) -> None:
        """Draw the block with this sample, unless it is there."""
        if self.begin <= number < self.begin + len(self.samples):
            return
        first, size = self.block
        self.begin = first + (number - first) // size * size
        end = self.begin + size if self.count is None else min(self.begin + size, self.count)
        text = read_samples(self.text, end, self.seed, self.base)[self.begin : end]
        self.samples = draw_samples(self.mix, text, self.seed, self.begin)
        before = multimodal_before(self.mix, self.begin, self.seed)
        self.numbers = {name: [0] * (len(self.samples) + 1) for name in self.readers.model.modules}
        for name, each, of_sample in (
            (self.readers.patches, self.mix.images, [len(sample.images) for sample in self.samples]),
            (self.readers.frames, self.mix.audio, [len(sample.audio) for sample in self.samples]),
        ):
            if name and each:
                self.numbers[name] = [*accumulate(of_sample, initial=before * each.each)]


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
    match = MIX.fullmatch(mix.strip())
    if not match:
        raise InputError(f"`{mix}` is no mix", where="--mix", fix="multimodal to text-only samples, as 9:1")
    return with_fields(workload, lengths=with_fields(given, multimodal=float(match[1]), text_only=float(match[2])))


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
