"""Batch after batch of a job's data, over and over: of a file all rows are kept, of all else one block."""

from planner.specs.inputs import Inputs
from planner.specs.lengths import MAX_ROWS, Batch, make_batch, read_lengths, read_rows
from planner.specs.token_rows import OFFSETS, open_offsets, row_lengths
from planner.specs.workload import LengthsFile

BLOCK = 64  # batches that are read at once; of a sample all before them are drawn again: a seed gives the sequence


class Batches:
    """By the number of a step: the first begins at the job's first row, and after the last one comes the first."""

    def __init__(self, inputs: Inputs) -> None:
        self.workload, self.first_row, self.seed = inputs.job.workload, inputs.first_row, inputs.seed
        self.base = inputs.sources["job"].parent
        self.rows: dict[int, int] = {}  # row → length
        end = MAX_ROWS
        self.total: int | None = None  # batches in the data; None: more than anyone trains
        lengths, source = self.workload.lengths, inputs.sources.get("lengths")
        self.folder = source.parent if source and source.name == OFFSETS else None
        if self.folder:
            self.offsets = open_offsets(self.folder)
            end = min(end, len(self.offsets) - 1)
        elif source:
            column = lengths.column if isinstance(lengths, LengthsFile) else "tokens"
            self.rows = dict(enumerate(read_lengths(source, column)))
            end = len(self.rows)
        self.period = (end - self.first_row) // self.workload.batch_rows
        if source:
            self.total = self.period

    def row(self, number: int) -> int:
        """At which the batch of a step begins."""
        return self.first_row + number % self.period * self.workload.batch_rows

    def __getitem__(self, number: int) -> Batch:
        """Raises InputError when every row of it is too long."""
        row = self.row(number)
        if row not in self.rows:
            self.sample(row)
        return make_batch(self.workload, self.rows, row)  # type: ignore[arg-type]  # it asks for rows by number alone

    def sample(self, row: int) -> None:
        size = self.workload.batch_rows * BLOCK
        begin = self.first_row + (row - self.first_row) // size * size
        if self.folder:
            drawn = row_lengths(self.offsets, self.folder, begin, begin + size)
        else:
            drawn = read_rows(self.workload, min(begin + size, MAX_ROWS), self.seed, self.base)[begin:]
        self.rows = dict(enumerate(drawn, begin))
