"""The job: which model, where, on what data, for what objective, within what limits, and what is already fixed."""

from typing import Annotated, ClassVar, Literal

import msgspec

from planner.specs.base import Amount, Count, Index, Name, RankCount, Share, Spec
from planner.specs.parallelism import Parallelism, Sync
from planner.specs.workload import Workload

Chance = Annotated[float, msgspec.Meta(gt=0, le=1)]


class Limits(Spec):
    """Bounds that the plan must keep."""

    tokens_per_rank: Count | None = None  # in one micro-batch; replaces the memory model when given
    memory_margin: Share = 0.06  # of the device's memory, never planned on
    oom_chance: Chance = 0.05  # of running out of memory, at most


class FixedItem(Spec):
    degree: RankCount


class Fix(Spec):
    """Decisions taken before solving; a strategy works around them."""

    items: dict[Index, FixedItem] = {}
    layouts: dict[Name, Parallelism] = {}  # by module


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
    objective: str = "step_seconds"  # what is best: a name of costs/objective.py
    layout: Parallelism = Parallelism()  # of every module: what is said holds, the rest a search decides
    degrees: tuple[RankCount, ...] = ()  # sequence-parallel degrees allowed; empty: powers of two that the heads divide
    sync: Sync = "micro_batch"
    planning: Literal["ahead", "per_batch"] | PerBatch = "ahead"  # of the batches after the first
    limits: Limits = Limits()
    fix: Fix = Fix()

    @property
    def zero(self) -> int:
        """The ZeRO stage under which groups change with every micro-batch: the usual one where the job says none."""
        return 3 if self.layout.zero is None else self.layout.zero

    @property
    def per_batch(self) -> PerBatch | None:
        """How batches are planned while others train; None when all are planned ahead."""
        if isinstance(self.planning, PerBatch):
            return self.planning
        return PerBatch() if self.planning == "per_batch" else None
