"""Batches of a job's data, over and over: what files say is kept in memory, of what is drawn one block of it."""

from planner.specs.inputs import Inputs
from planner.specs.workload.length_sources import LengthsFile
from planner.specs.workload.sample_batches import SampleBlock, SizedSamples, has_samples, open_sample_data, sample_batch
from planner.specs.workload.samples import MAX_SAMPLES, SampleBatch, make_batch, read_lengths, read_samples
from planner.specs.workload.stream_batches import SourcePaths, StreamReader
from planner.specs.workload.token_folder import OFFSETS, open_offsets, sample_lengths

# Batches that are read at once. Of a distribution all earlier lengths are drawn again: the seed fixes the sequence.
BLOCK_BATCHES = 64


class BatchStream:
    """Batches by step number: the first begins at the job's `first_row`, and the first follows the last."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs, self.workload, self.first_row = inputs, inputs.job.workload, inputs.first_row
        self.samples = samples_of(inputs) if has_samples(self.workload) else None
        self.lengths = None if self.samples else SampleLengths(inputs)
        where = SourcePaths(inputs.sources["job"], inputs.sources["model"], inputs.sources["job"].parent)
        self.streams = (
            StreamReader(self.workload, inputs.model, inputs.module, inputs.seed, where)
            if self.workload.streams
            else None
        )
        count = self.samples.count if self.samples else self.lengths.count if self.lengths else None
        end = MAX_SAMPLES if count is None else min(count, MAX_SAMPLES)
        self.period = (end - self.first_row) // self.workload.batch_rows
        self.total = None if count is None else self.period  # batches in the data; None: practically unlimited

    def first_sample(self, number: int) -> int:
        """Number of the first sample in the batch of a step."""
        return self.first_row + number % self.period * self.workload.batch_rows

    def __getitem__(self, number: int) -> SampleBatch:
        """The batch of a step. Raises InputError when every sample of it is too long."""
        start = self.first_sample(number)
        if self.samples:
            return sample_batch(self.workload, self.inputs.model, self.inputs.module, self.samples, start)
        assert self.lengths, "a workload has samples or lengths"
        batch = make_batch(self.workload, self.lengths.of_batch(start), start)
        return self.streams.add_to(batch) if self.streams else batch


def samples_of(inputs: Inputs) -> SizedSamples:
    """The samples of a job with their images and sound. Raises InputError."""
    workload, base = inputs.job.workload, inputs.sources["job"].parent
    block = SampleBlock(inputs.first_row, workload.batch_rows * BLOCK_BATCHES)
    return open_sample_data(workload, inputs.model, inputs.module, inputs.seed, base, block)


class SampleLengths:
    """Lengths of samples, by number."""

    def __init__(self, inputs: Inputs) -> None:
        self.workload, self.first_row, self.seed = inputs.job.workload, inputs.first_row, inputs.seed
        self.base = inputs.sources["job"].parent
        self.known: dict[int, int] = {}  # number of the sample → its length
        self.count: int | None = None  # samples of the data; None: they are drawn
        lengths, source = self.workload.lengths, inputs.sources.get("lengths")
        self.folder = source.parent if source and source.name == OFFSETS else None
        if self.folder:
            self.offsets = open_offsets(self.folder)
            self.count = len(self.offsets) - 1
        elif source:
            column = lengths.column if isinstance(lengths, LengthsFile) else "tokens"
            self.known = dict(enumerate(read_lengths(source, column)))
            self.count = len(self.known)

    def of_batch(self, start: int) -> dict[int, int]:
        """The lengths of the batch from a sample on, and of others. Raises InputError."""
        if start not in self.known:
            self.read_block(start)
        return self.known

    def read_block(self, sample: int) -> None:
        """Reads or draws the block of lengths that contains the batch at `sample`."""
        size = self.workload.batch_rows * BLOCK_BATCHES
        begin = self.first_row + (sample - self.first_row) // size * size
        if self.folder:
            lengths = sample_lengths(self.offsets, self.folder, begin, begin + size)
        else:
            lengths = read_samples(self.workload, min(begin + size, MAX_SAMPLES), self.seed, self.base)[begin:]
        self.known = dict(enumerate(lengths, begin))
