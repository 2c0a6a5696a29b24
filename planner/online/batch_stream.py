"""Batches of a job's data, over and over: lengths of a file are kept in memory, of other sources one block of them."""

from planner.specs.inputs import Inputs
from planner.specs.workload.length_sources import LengthsFile
from planner.specs.workload.samples import MAX_SAMPLES, SampleBatch, make_batch, read_lengths, read_samples
from planner.specs.workload.token_folder import OFFSETS, open_offsets, sample_lengths

# Batches that are read at once. Of a distribution all earlier lengths are drawn again: the seed fixes the sequence.
BLOCK_BATCHES = 64


class BatchStream:
    """Batches by step number: the first begins at the job's `first_row`, and the first follows the last."""

    def __init__(self, inputs: Inputs) -> None:
        self.workload, self.first_row, self.seed = inputs.job.workload, inputs.first_row, inputs.seed
        self.base = inputs.sources["job"].parent
        self.sample_lengths: dict[int, int] = {}  # number of the sample → its length
        end = MAX_SAMPLES
        self.total: int | None = None  # batches in the data; None: practically unlimited
        lengths, source = self.workload.lengths, inputs.sources.get("lengths")
        self.folder = source.parent if source and source.name == OFFSETS else None
        if self.folder:
            self.offsets = open_offsets(self.folder)
            end = min(end, len(self.offsets) - 1)
        elif source:
            column = lengths.column if isinstance(lengths, LengthsFile) else "tokens"
            self.sample_lengths = dict(enumerate(read_lengths(source, column)))
            end = len(self.sample_lengths)
        self.period = (end - self.first_row) // self.workload.batch_rows
        if source:
            self.total = self.period

    def first_sample(self, number: int) -> int:
        """Number of the first sample in the batch of a step."""
        return self.first_row + number % self.period * self.workload.batch_rows

    def __getitem__(self, number: int) -> SampleBatch:
        """The batch of a step. Raises InputError when every sample of it is too long."""
        sample = self.first_sample(number)
        if sample not in self.sample_lengths:
            self.read_block(sample)
        return make_batch(self.workload, self.sample_lengths, sample)  # type: ignore[arg-type]  # it only looks up samples by number

    def read_block(self, sample: int) -> None:
        """Reads or draws the block of lengths that contains the batch at `sample`."""
        size = self.workload.batch_rows * BLOCK_BATCHES
        begin = self.first_row + (sample - self.first_row) // size * size
        if self.folder:
            lengths = sample_lengths(self.offsets, self.folder, begin, begin + size)
        else:
            lengths = read_samples(self.workload, min(begin + size, MAX_SAMPLES), self.seed, self.base)[begin:]
        self.sample_lengths = dict(enumerate(lengths, begin))
