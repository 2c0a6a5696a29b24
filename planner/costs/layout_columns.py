"""Layouts as columns: one layout, or a million as arrays, together with the batch that a step trains on.

Every number may be an array over many layouts: the closed form is arithmetic that broadcasts, so that the same code
prices one layout and a million. Field names are those of specs/parallelism.py. Functions of this package take such
layouts as a parameter called `at`: prices at these degrees, batch and precision.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.plan.mesh.even_stages import has_even_stages
from planner.plan.plan_file import Layout
from planner.specs.parallelism import (
    DEFAULT_RANK_ORDER,
    Dispatch,
    GradientDtype,
    OverlappedKind,
    Recompute,
    RecomputedPart,
    Schedule,
    part_code,
    parts_of,
)

Number = Any  # int, float or an array of these; all arrays of one Columns have one shape
Precision = Literal["bf16", "fp8", "fp4", "fp16", "float32", "float64"]
CAST_PRECISIONS = ("fp8", "fp4")  # of products whose operands are cast from bf16


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutColumns:
    """A layout and its batch; ranks are numbered as `rank_order` says, fastest-varying dim first, and those of a stage
    for its experts with etp fastest, then ep.
    """

    ranks: Number
    seq: Number  # tokens of one sequence
    batch: Number  # sequences in a step, over all ranks
    micro_batch: Number = 1  # sequences that one replica works on at once
    tp: Number = 1
    cp: Number = 1
    ulysses: Number = 1  # ranks of cp that shard heads (all-to-all); the other factor of cp is the ring
    pp: Number = 1
    vpp: Number = 1
    ep: Number = 1
    etp: Number = 1
    replica: Number = 1  # replicas of each ZeRO shard (HSDP)
    zero: Number = 0
    cross_reads: Number = 0.0  # outputs that cross attention reads, over tokens (costs/layer_pass.py)
    cross_pairs: Number = 0.0  # pairs of a token and an output, over squared tokens of sequences
    readers: Number = 1.0  # share of the tokens that are in sequences which read something
    sequence_parallel: Number = True  # of no effect without tp
    full_recompute: Number = 0.0  # share of the layers that are recomputed in full
    recomputed_parts: frozenset[RecomputedPart] = frozenset()  # what the other layers recompute
    offload: Number = 0.0  # share of the activations in host memory; a chunk's first and last layer keep theirs
    offloaded_parts: Number = 0  # kinds of activations that `offload` is a share of (`part_code`); 0: all
    optimizer_offload: Number = 0.0  # share of Adam's moments in host memory, where processors update them
    dtype: Precision = "bf16"
    schedule: Schedule = "1f1b"
    dispatch: Dispatch | tuple[Dispatch, ...] = "all_to_all"  # of several, each layout has the cheapest
    rank_order: str = DEFAULT_RANK_ORDER
    gradients: GradientDtype = "float32"
    overlap: frozenset[OverlappedKind] = frozenset()
    imbalance: float = 0.0  # of a learnt router's, what reaches the experts' ranks; 0: equally many tokens for each
    # Layers in front of each chunk, and in all, of pipelines whose stages are said; (): as even as they can be.
    cuts: tuple[int, ...] = ()
    load_spreads: Number = 0.0  # how far above its mean the load of the fullest rank of experts is, in its spreads
    # Which layouts have equal values in some fields, as far as it was asked for (costs/distinct_columns.py).
    alike: dict[tuple[str, ...], Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def sharding(self) -> Number:
        """Ranks over which ZeRO shards model states: dp·cp."""
        return self.ranks / (self.tp * self.pp * self.replica)

    @property
    def data_ranks(self) -> Number:
        """Ranks that hold the same dense parameters before ZeRO shards them: dp·cp·replica."""
        return self.ranks / (self.tp * self.pp)

    @property
    def pipelines(self) -> Number:
        """Replicas of the model, each of which works on sequences of its own: dp·replica."""
        return self.ranks / (self.tp * self.cp * self.pp)

    @property
    def edp(self) -> Number:
        """Replicas of the experts among the ranks of one pipeline stage."""
        return self.ranks / (self.pp * self.ep * self.etp)

    @property
    def ring(self) -> Number:
        """Ranks of cp around which keys and values travel (ring attention)."""
        return self.cp / self.ulysses

    @property
    def micro_batches(self) -> Number:
        """Micro-batches of one pipeline in one step."""
        return self.batch / (self.pipelines * self.micro_batch)

    @property
    def element(self) -> float:
        """Bytes of one element of activations and of gathered weights."""
        return {"float32": 4.0, "float64": 8.0}.get(self.dtype, 2.0)

    @property
    def full_precision(self) -> bool:
        """Whether weights are float32 or float64 in compute as in the update, without a narrower copy."""
        return self.dtype in ("float32", "float64")

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """The kinds of dispatch of which each layout has the cheapest."""
        return (self.dispatch,) if isinstance(self.dispatch, str) else self.dispatch

    @property
    def tokens(self) -> Number:
        """Tokens of one micro-batch on one rank, where only cp shards the sequence."""
        return self.micro_batch * self.seq / self.cp


NON_NUMERIC_FIELDS = tuple(
    field.name for field in fields(LayoutColumns) if field.type is not Number
)  # fields that are no numbers


NUMERIC_FIELDS = tuple(field.name for field in fields(LayoutColumns) if field.name not in NON_NUMERIC_FIELDS)


def stack_columns(layouts: list[LayoutColumns]) -> LayoutColumns:
    """Many layouts as one Columns of arrays. They must agree in the fields that are no numbers."""
    numbers: dict[str, Any] = {name: field_column(layouts, name) for name in NUMERIC_FIELDS}
    return replace(layouts[0], **numbers)


def field_column(layouts: list[LayoutColumns], name: str) -> NDArray[np.float64]:
    """One field of many layouts as an array (layouts,)."""
    return np.array([getattr(layout, name) for layout in layouts], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class PipelineBatch:
    """The batch of a pipeline: sequences of about `seq` tokens, `micro_batch` at a time, `batch` in a step."""

    seq: float
    batch: float = 1.0
    micro_batch: float = 1.0


ONE_SEQUENCE = PipelineBatch(seq=4096.0)  # for model states and costs per token, which the batch does not change


def columns_of(layout: Layout, batch: PipelineBatch = ONE_SEQUENCE) -> LayoutColumns:
    """The columns of a plan's layout. Where layers differ in recomputation, those of layers without any.

    Raises InputError where some layers place their experts differently: callers that can price those ask for each
    placement by itself.
    """
    if layout.experts:
        message = "some layers place their experts differently, which has no closed form"
        raise InputError(message, where="layouts", fix="leave `experts` out of the layout, or simulate the plan")
    full, parts = recompute_columns("none" if isinstance(layout.recompute, dict) else layout.recompute)
    return LayoutColumns(
        ranks=len(layout.ranks),
        seq=batch.seq,
        batch=batch.batch,
        micro_batch=batch.micro_batch,
        **{name: getattr(layout, name) for name in LAYOUT_FIELDS},
        offload=layout.offload_share,
        offloaded_parts=part_code(layout.offloaded_parts),
        full_recompute=full,
        recomputed_parts=parts,
        dtype=layout.dtype,
        schedule=layout.schedule or ("interleaved" if layout.vpp > 1 else "1f1b"),
        dispatch=layout.dispatch,
        rank_order=layout.rank_order,
        gradients=layout.gradients,
        overlap=frozenset(layout.overlap),
        cuts=() if has_even_stages(layout) else (0, *(stage[-1] + 1 for stage in layout.stages)),
    )


LAYOUT_FIELDS = (
    "tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "replica", "zero", "sequence_parallel", "optimizer_offload",
)  # fmt: skip


def recompute_columns(how: Recompute) -> tuple[float, frozenset[RecomputedPart]]:
    """The share of layers that are recomputed in full, and the parts that the other layers recompute."""
    return (1.0 if how == "full" else 0.0), parts_of(how)
