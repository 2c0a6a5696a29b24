"""Parallelisms as columns: one layout or a million of them, and what their step trains.

Every number may be an array of many layouts at once: what prices them is arithmetic that broadcasts, so that one layout
is priced from Python as a million of them are. Names and words are those of specs/parallelism.py.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.plan.model import Layout
from planner.specs.parallelism import Dispatch, Gradients, Overlapped, Recompute, Schedule

Number = Any  # int, float or an array of these; all arrays of one Columns have one shape
Precision = Literal["bf16", "fp8", "fp16", "float32", "float64"]
# What recomputation of parts makes again in backward: attention's matrix, norms, the MLP's inner activations, experts.
Part = Literal["attention", "norm", "mlp", "moe"]
SELECTIVE: frozenset[Part] = frozenset({"norm", "mlp"})  # what is cheap to make again and large to keep


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Ranks are numbered with tp fastest, then cp (and ep over dp·cp), then dp and replica, then pp slowest."""

    ranks: Number
    seq: Number  # tokens of one sequence
    batch: Number  # sequences in a step, over all ranks
    micro_batch: Number = 1  # sequences that one replica works on at once
    tp: Number = 1
    cp: Number = 1
    ulysses: Number = 1  # of cp's ranks, those that share out heads
    pp: Number = 1
    vpp: Number = 1
    ep: Number = 1
    etp: Number = 1
    replica: Number = 1  # whole copies of what ZeRO shards
    zero: Number = 0
    reads: Number = 0.0  # tokens that cross attention reads, for each token of a sequence
    sequence_parallel: Number = True  # of no effect without tp
    full: Number = 0.0  # share of the layers that are recomputed whole
    parts: frozenset[Part] = frozenset()  # made again of the others
    dtype: Precision = "bf16"
    schedule: Schedule = "1f1b"
    dispatch: Dispatch = "all_to_all"
    gradients: Gradients = "float32"
    overlap: frozenset[Overlapped] = frozenset()
    balanced: bool = True  # every expert has as many tokens as any other
    adapters: bool = False  # only low-rank adapters are trained: no gradients of the other weights

    @property
    def sharding(self) -> Number:
        """Ranks that share states among each other: dp·cp."""
        return self.ranks / (self.tp * self.pp * self.replica)

    @property
    def data_ranks(self) -> Number:
        """Ranks that have the same part of the dense parameters: dp·cp·replica."""
        return self.ranks / (self.tp * self.pp)

    @property
    def pipelines(self) -> Number:
        """Replicas of the model, each of which works on sequences of its own: dp·replica."""
        return self.ranks / (self.tp * self.cp * self.pp)

    @property
    def edp(self) -> Number:
        """Copies of the experts, on the ranks of one pipeline stage."""
        return self.ranks / (self.pp * self.ep * self.etp)

    @property
    def ring(self) -> Number:
        """Ranks of cp around which keys and values go."""
        return self.cp / self.ulysses

    @property
    def micro_batches(self) -> Number:
        """In one step of one pipeline."""
        return self.batch / (self.pipelines * self.micro_batch)

    @property
    def element(self) -> float:
        """Bytes of an element of activations and of gathered weights."""
        return {"float32": 4.0, "float64": 8.0}.get(self.dtype, 2.0)

    @property
    def wide(self) -> bool:
        """Whether weights are computed with as they are updated."""
        return self.dtype in ("float32", "float64")

    @property
    def tokens(self) -> Number:
        """Of one micro-batch, on one rank, where only cp splits the sequence."""
        return self.micro_batch * self.seq / self.cp


WORDS = (
    "parts",
    "dtype",
    "schedule",
    "dispatch",
    "gradients",
    "overlap",
    "balanced",
    "adapters",
)  # what no array holds


def stacked(rows: list[Columns]) -> Columns:
    """Many layouts as one Columns. They agree in what is no number."""
    names = [field.name for field in fields(Columns) if field.name not in WORDS]
    numbers: dict[str, Any] = {name: column(rows, name) for name in names}
    return replace(rows[0], **numbers)


def column(rows: list[Columns], name: str) -> NDArray[np.float64]:
    return np.array([getattr(row, name) for row in rows], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Batch:
    """What a pipeline works on: sequences of about `seq` tokens, `micro_batch` at a time, `batch` in a step."""

    seq: float
    batch: float = 1.0
    micro_batch: float = 1.0


ONE = Batch(seq=4096.0)  # where only states are asked for, or costs per token


def columns_of(layout: Layout, batch: Batch = ONE) -> Columns:
    """A plan's layout. Where layers differ in what they recompute, it is of those that recompute nothing.

    Raises InputError where experts of some layers lie otherwise: whoever can price that asks for each way by itself.
    """
    if layout.experts:
        message = "experts of some layers lie otherwise, which has no closed form"
        raise InputError(message, where="layouts", fix="leave `experts` out of the layout, or simulate the plan")
    full, parts = recomputed("none" if isinstance(layout.recompute, dict) else layout.recompute)
    return Columns(
        ranks=len(layout.ranks),
        seq=batch.seq,
        batch=batch.batch,
        micro_batch=batch.micro_batch,
        **{name: getattr(layout, name) for name in DEGREES},
        full=full,
        parts=parts,
        dtype=layout.dtype,
        schedule=layout.schedule or ("interleaved" if layout.vpp > 1 else "1f1b"),
        dispatch=layout.dispatch,
        gradients=layout.gradients,
        overlap=frozenset(layout.overlap),
    )


DEGREES = ("tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "replica", "zero", "sequence_parallel")


def recomputed(how: Recompute) -> tuple[float, frozenset[Part]]:
    """The share of layers that are made again whole, and what is made again of the others."""
    return (1.0 if how == "full" else 0.0), (SELECTIVE if how == "selective" else frozenset())
