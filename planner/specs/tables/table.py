"""One embedding table, and what a job says of its tables beside their file."""

from typing import Annotated, Literal

import msgspec

from planner.specs.base import Amount, Count, Positive, RankCount, Share, Spec

MAX_TABLES = 20_000
LEAST_COLUMNS, MOST_PARTS = 32, 8  # of a shard; of a table's columns
CACHES = (0.05, 0.2)  # shares of a table's rows on the device, where the rest is in host memory
TABLE_DTYPE_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
STATE_BYTES = 4  # optimizers keep their states in float32
# The states of a row of `dim` elements, in numbers of float32
ROW_STATES = {"sgd": (0, 0), "rowwise_adagrad": (0, 1), "adagrad": (1, 0), "adam": (2, 0)}  # an element, a row

# whole: on one rank; columns: parts of each row on several; rows: some rows on every rank of a group; node_rows: some
# on every rank of one node; grid: columns on several nodes, rows of each over the ranks there; replicated: on all
Cut = Literal["whole", "columns", "rows", "node_rows", "grid", "replicated"]
Replicas = Literal["node", "across"]  # copies of a shard on neighbouring ranks, as TorchRec has them, or far apart
Rows = Annotated[int, msgspec.Meta(ge=1, le=10**12)]
Width = Annotated[int, msgspec.Meta(ge=1, le=65_536)]


class Table(Spec):
    """A table of `rows` vectors, of which a sample sums `pooling` in the mean."""

    rows: Rows
    dim: Width
    pooling: Positive = 1.0
    dtype: Literal["fp32", "fp16", "bf16", "int8"] = "fp32"
    optimizer: Literal["rowwise_adagrad", "adagrad", "adam", "sgd"] = "rowwise_adagrad"
    skew: Annotated[float, msgspec.Meta(ge=0, le=4)] = 0.0  # of how often rows are read: Zipf's exponent; 0: all alike
    # Share of lookups that read the 5 and the 20 % of the rows that are read most, as measured; None: by the skew
    hits: tuple[Share, Share] | None = None

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return TABLE_DTYPE_BYTES[self.dtype]

    @property
    def bytes(self) -> float:
        """Bytes of all rows and of the optimizer's states of them."""
        each, row = ROW_STATES[self.optimizer]
        return float(self.rows * (self.dim * (self.element_bytes + STATE_BYTES * each) + STATE_BYTES * row))

    @property
    def column_parts(self) -> list[int]:
        """Into how many equal parts its columns may be cut."""
        counts = range(2, MOST_PARTS + 1)
        return [n for n in counts if self.dim % (4 * n) == 0 and self.dim // n >= LEAST_COLUMNS]


class ReusedRows(Spec):
    """Rows that are read about equally often: how many there are, and lookups of all of them, in any two units."""

    rows: Positive
    lookups: Amount


class JobTables(Spec):
    """The embedding tables of a job, and what of their placement is fixed."""

    file: str = msgspec.field(name="from")  # a table file, YAML or CSV
    groups: RankCount | None = None  # each with every table; None: the best number is found
    replicas: Replicas | None = None  # where the copies of a shard are; None: the better is found
    average_every: Count = 1  # steps after which copies are averaged
