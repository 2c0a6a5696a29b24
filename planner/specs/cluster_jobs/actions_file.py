"""The file of decisions about jobs on a cluster: which GPUs, which jobs, who decided, what, and what came of it.

It is complete: its decisions can be replayed, and taken again, from what stands in it.
"""

from typing import Annotated, ClassVar, Literal

import msgspec

from planner.specs.base import Amount, Index, Indices, Share, Spec
from planner.specs.cluster_jobs.jobs import ClusterJob
from planner.specs.hardware.cluster import RankKind


class PolicyChoice(Spec):
    """Who decides: an order, what kind a job gets, and whether running jobs are decided about again."""

    order: str = "fifo"
    place: str = "fastest"
    backfill: bool = True  # whether later jobs may go ahead of one that does not fit
    preempt: bool = False  # whether running jobs may be stopped or moved for others
    rounds: str = ""  # seconds of a round, or `gavel`; empty: decided at each event
    restart_s: Amount = 0.0  # that a job makes no progress when it is started again, moved or resized
    weights: str = ""  # of the order `learned`: the file of its policy, which lies beside this file when it is checked
    weights_sha256: str = ""  # of that file

    @property
    def places(self) -> tuple[str, ...]:
        """What is said of places, such as `cells,pack`."""
        return tuple(self.place.split(","))

    @property
    def counts_change(self) -> bool:
        """Whether jobs get other counts than they ask for."""
        return self.order in ("marginal_gain", "learned") or "cells" in self.places

    @property
    def round_seconds(self) -> float:
        """Of a round; where nothing is said, so long that restarts of every job take a twentieth of it at most."""
        return float(self.rounds) if self.rounds.isdigit() else max(360.0, 20 * self.restart_s)


class RecordedAction(Spec, kw_only=True):
    """One action on one job."""

    do: Literal["start", "resize", "move", "pack", "stop", "wait"]
    job: str = ""  # none of `wait`
    gpus: Indices = Indices()
    until_s: Amount = 0.0  # of `wait`
    reason: str = ""


class RecordedDecision(Spec, kw_only=True):
    """All actions at one event."""

    event: Index  # its number; events without actions are not recorded
    at_s: Amount
    after: tuple[str, ...]  # what had happened: `arrival of 17`
    actions: tuple[RecordedAction, ...]


class ScheduleOutcome(Spec, kw_only=True):
    """What came of the decisions."""

    makespan_s: Amount
    mean_completion_s: Amount
    p50_completion_s: Amount
    p99_completion_s: Amount
    utilisation: Share
    moves: Index


class ActionsFile(Spec, kw_only=True):
    """A file of decisions, `planner.actions/1`."""

    FORMAT: ClassVar[str] = "planner.actions/1"
    format: str
    cluster: Annotated[tuple[RankKind, ...], msgspec.Meta(min_length=1)]
    policy: PolicyChoice
    jobs: tuple[ClusterJob, ...]
    outcome: ScheduleOutcome
    decisions: tuple[RecordedDecision, ...]
