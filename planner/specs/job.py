"""The job: which model, where, on what data, for what objective, within what limits, and what is already fixed."""

from typing import Annotated, ClassVar, Literal

import msgspec

from planner.specs.base import Amount, Count, Index, LayerCount, Name, RankCount, Share, Spec
from planner.specs.workload import Workload

Recompute = Literal["none", "selective", "full"]
Sync = Literal["micro_batch", "step"]
Dtype = Literal["bf16", "fp8", "float32", "float64"]  # fp8: bf16 whose matrix products are computed in fp8
ZERO_BUBBLE = ("zb_h1", "zb_h2")  # schedules that make gradients of weights apart from those of inputs
Zero = Annotated[int, msgspec.Meta(ge=0, le=3)]  # stage: 1 shards optimizer states, 2 gradients too, 3 weights too


class Limits(Spec):
    """Bounds that the plan must keep."""

    tokens_per_rank: Count | None = None  # in one micro-batch; replaces the memory model when given
    memory_margin: Share = 0.06  # of the device's memory, never planned on


class LayoutWish(Spec):
    """How the module's states are kept. What is said holds for every strategy; what is not said, a search of layouts
    decides, and other strategies take the usual.
    """

    zero: Zero | None = None
    recompute: Recompute | None = None
    dtype: Dtype = "bf16"

    @property
    def zero_used(self) -> int:
        """The stage, or the usual one."""
        return 3 if self.zero is None else self.zero

    @property
    def recompute_used(self) -> Recompute:
        return self.recompute or "none"


class FixedItem(Spec):
    degree: RankCount


class StaticLayout(Spec):
    """How a module is spread for all batches alike, as far as it is decided: a strategy searches the rest."""

    tp: RankCount | None = None
    cp: RankCount | None = None  # of a ring over which each sequence is split
    pp: RankCount | None = None
    vpp: LayerCount | None = None  # chunks of layers on a pipeline rank
    ep: RankCount | None = None
    etp: RankCount | None = None
    micro_batch: Count | None = None  # sequences
    zero: Zero | None = None  # None: as the job's `layout` has it, if that says it
    recompute: Recompute | None = None  # likewise
    schedule: Literal["1f1b", "gpipe", "interleaved", "zb_h1", "zb_h2"] | None = None

    def __post_init__(self) -> None:
        if self.schedule not in (None, "interleaved") and (self.vpp or 1) > 1:
            raise ValueError(
                f"{self.schedule} has one chunk a rank, and vpp is {self.vpp} | say interleaved, or vpp: 1"
            )
        if self.schedule in ZERO_BUBBLE and (self.recompute or "none") != "none":
            raise ValueError(
                f"{self.schedule} keeps activations until weights' gradients are made | say recompute: none, or 1f1b"
            )


class Fix(Spec):
    """Decisions taken before solving; a strategy works around them."""

    items: dict[Index, FixedItem] = {}
    layouts: dict[Name, StaticLayout] = {}  # by module


class PerBatch(Spec):
    """Each batch is planned while earlier ones train."""

    look_ahead: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 4  # batches that are planned before their turn
    deadline_ms: Amount | None = None  # of planning a batch, after which it is improved no more; None: by effort alone
    wait: bool = False  # no step is taken before its planning has ended: without a deadline, every run trains the same


class Job(Spec):
    """`job.yaml`, and `profiles/jobs/*.yaml`."""

    FORMAT: ClassVar[str] = "planner.job/1"
    format: str
    name: str
    model: str  # a shipped model, or a path
    cluster: str  # a shipped cluster, or a path
    workload: Workload
    software: str = "planner"  # what trains: a shipped framework, or a path
    profile: str = "auto"  # what was measured here, else what is shipped for the device; or a name, or a path
    strategy: str = "sequence_groups"
    objective: Literal["step_seconds"] = "step_seconds"
    layout: LayoutWish = LayoutWish()
    degrees: tuple[RankCount, ...] = ()  # sequence-parallel degrees allowed; empty: powers of two that the heads divide
    sync: Sync = "micro_batch"
    planning: Literal["ahead", "per_batch"] | PerBatch = "ahead"  # of the batches after the first
    limits: Limits = Limits()
    fix: Fix = Fix()

    @property
    def per_batch(self) -> PerBatch | None:
        """How batches are planned while others train; None when all are planned ahead."""
        if isinstance(self.planning, PerBatch):
            return self.planning
        return PerBatch() if self.planning == "per_batch" else None
