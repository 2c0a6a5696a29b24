"""What a run leaves behind."""

from dataclasses import dataclass
from typing import Literal

Ended = Literal["steps", "time", "interrupt"]  # why a run was over


@dataclass(frozen=True, slots=True)
class Measured:
    """One task on one rank, in seconds since the step began, on a clock that all ranks share.

    Gathers have a record in the forward and one in the backward task that they belong to.
    """

    id: str
    rank: int
    start: float
    end: float
    comm: float = 0.0  # seconds of it in which compute waited for the ranks of its group
    sent_bytes: int = 0  # to other ranks


@dataclass(frozen=True, slots=True)
class Planned:
    """A step that was planned while the run lasted."""

    busy_s: float  # of the planner
    exposed_s: float  # that the slowest rank waited for it; 0: it was there

    @property
    def hidden_s(self) -> float:
        """Of planning that nobody waited for."""
        return max(0.0, self.busy_s - self.exposed_s)


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of one rank's GPU in a step, measured, or as a plan has them. What is held as the step begins is part of
    the peaks behind it, and these of what is reserved.
    """

    held: float  # as it begins: weights, optimizer states, the step's items
    passes: float  # most at once until gradients are reduced: with these, activations and what is gathered for passes
    update: float  # most at once behind that: with gradients, the optimizer's work, what is gathered for the next step
    reserved: float  # most that torch's allocator had of the device
    outside: float  # in use on the device beside that, at the end: its context, NCCL, other programs

    @property
    def peak(self) -> float:
        """Most at once in the step."""
        return max(self.passes, self.update)


@dataclass(frozen=True, slots=True)
class StepResult:
    loss: float  # per token that has a target, over all ranks
    tokens: int
    seconds: float  # of the slowest rank
    measured: tuple[Measured, ...]  # of the last steps of a run; none of those before
    peak_bytes: tuple[int | None, ...]  # of each rank's tensors; None where torch does not count them: on the CPU
    planned: Planned | None = None  # None: before the run
    learning_rate: float = 0.0
    grad_norm: float | None = None  # before clipping; None: nobody asked
    memory: tuple[RankMemory, ...] = ()  # of each rank, kept as `measured` is; none on the CPU


@dataclass(frozen=True, slots=True)
class Verified:
    """The largest differences from one process with the same weights and items, over all verified steps."""

    steps: int
    items: int  # each worked on exactly once
    loss_rel_err: float
    grad_rel_err: float
    worst: str  # the parameter that has it; empty: forwards alone leave no gradients


@dataclass(frozen=True, slots=True)
class RunResult:
    steps: tuple[StepResult, ...]
    verify: Verified | None
    ranks: int
    machine: str  # for labels
    torch: str  # its version
    ended: Ended = "steps"
    before: int = 0  # steps that the checkpoint had behind it with which the run went on
