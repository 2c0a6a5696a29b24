"""Results of a run: per task, per step, and over all."""

import signal
from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.launch import SentBytes
from planner.plan.task import RankWork
from planner.runtime.health.spikes import Spike

StopReason = Literal["steps", "time", "interrupt", "terminate", "hangup", "spike", "devices"]  # why a run stopped
REASON_OF_SIGNAL: dict[int, StopReason] = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminate",
    signal.SIGHUP: "hangup",
}


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """Measured times of one task on one rank, in seconds since the step began, on a clock that all ranks share.

    A gather has one record in the forward and one in the backward that it belongs to.
    """

    id: str
    rank: int
    start: float
    end: float
    comm: float = 0.0  # of these seconds, those in which compute waited for the ranks of its group (exposed)
    sent_bytes: int = 0  # to other ranks


@dataclass(frozen=True, slots=True)
class PlanningOverlap:
    """Planning time of a step that was planned during the run."""

    busy_s: float  # seconds that the planner worked on it
    exposed_s: float  # seconds that the slowest rank waited for it; 0: it was ready

    @property
    def hidden_s(self) -> float:
        """Seconds of planning that overlapped with training."""
        return max(0.0, self.busy_s - self.exposed_s)


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes on one rank's GPU in a step, measured or predicted. Both peaks include `held`; `reserved` includes them."""

    held: float  # when the step begins: weights, optimizer state, the step's items
    passes: float  # peak until gradients are reduced: includes these, activations and gathered parameters
    update: float  # peak after that: includes gradients, optimizer workspace, parameters gathered for the next step
    reserved: float  # peak that torch's allocator reserved on the device
    outside: float  # used on the device outside the allocator, at the end: CUDA context, NCCL, other programs

    @property
    def peak(self) -> float:
        """Peak of allocated bytes in the step."""
        return max(self.passes, self.update)


class FeatureCounts(NamedTuple):
    """Items of frozen encoders in a step whose outputs were read, or computed; of these, whose file was damaged."""

    read: int = 0
    computed: int = 0
    damaged: int = 0

    def __add__(self, other: object) -> "FeatureCounts":
        assert isinstance(other, FeatureCounts)
        return FeatureCounts(*(one + more for one, more in zip(self, other, strict=True)))


NO_FEATURES = FeatureCounts()


@dataclass(frozen=True, slots=True)
class StepResult:
    loss: float  # over the targets of all ranks, weighted as the plan says
    tokens: int
    seconds: float  # of the slowest rank
    measured: tuple[TaskRecord, ...]  # kept for the last steps of a run only
    peak_bytes: tuple[int | None, ...]  # allocated on each rank; None on the CPU, where torch does not count
    planning: PlanningOverlap | None = None  # None: it was planned before the run
    learning_rate: float = 0.0
    grad_norm: float | None = None  # global norm before clipping; None: not computed
    memory: tuple[RankMemory, ...] = ()  # of each rank, kept for the same steps as `measured`; empty on the CPU
    sent_bytes: tuple[SentBytes, ...] = ()  # of each rank, kept for the same steps as `measured`
    table_seconds: float = 0.0  # of embedding tables, on the mean rank, waits for others among them
    loading: float = 0.0  # seconds before the step in which the slowest rank waited for items that its loader loads
    features: FeatureCounts = NO_FEATURES  # of items of frozen encoders whose outputs are kept, on all ranks
    work: tuple[RankWork, ...] = ()  # of each rank, wherever `measured` was taken

    @property
    def whole_seconds(self) -> float:
        """Seconds with the wait for the loader before it."""
        return self.seconds + self.loading


@dataclass(frozen=True, slots=True)
class ParityErrors:
    """Parity: largest errors against one process with the same weights and items, over all verified steps."""

    steps: int
    items: int  # each was processed exactly once
    loss_rel_err: float
    grad_rel_err: float
    worst: str  # the parameter with the largest gradient error; empty: forward-only plans have no gradients


@dataclass(frozen=True, slots=True)
class RunResult:
    steps: tuple[StepResult, ...]
    verify: ParityErrors | None
    ranks: int
    machine: str  # label of the machine, such as `8 x NVIDIA H200`
    torch: str  # its version
    stop_reason: StopReason = "steps"
    steps_before: int = 0  # steps done before, by the checkpoint from which the run was resumed
    spike: Spike | None = None  # for which it stopped
