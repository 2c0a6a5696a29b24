"""Predicted and measured GPU memory by use.

The parts of a step that torch counts are composed from the parts of the plan's memory model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.plan.plan_file import Plan
from planner.scoring import Score

if TYPE_CHECKING:
    from planner.runtime import RankMemory


@dataclass(frozen=True, slots=True)
class PeakMemoryUse:
    """Memory of one rank in the step of its measured peak."""

    rank: int
    measured: "RankMemory"
    predicted: "RankMemory | None"  # of the same step; None: the plan has no prices


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Predicted and measured bytes of one use."""

    name: str
    predicted: float | None
    measured: float


def peak_memory_use(
    plan: Plan, steps: Sequence[tuple[Sequence["RankMemory"], Score | None]]
) -> tuple[PeakMemoryUse, ...]:
    """Every rank at its peak over the steps in which memory was measured; empty if it never was."""
    counted = [(ranks, predicted_memory(plan, score) if score else None) for ranks, score in steps if ranks]
    most = []
    for rank in range(plan.size if counted else 0):
        ranks, expected = max(counted, key=lambda step: step[0][rank].peak)
        most.append(PeakMemoryUse(rank, ranks[rank], expected[rank] if expected else None))
    return tuple(most)


def predicted_memory(plan: Plan, score: Score) -> "tuple[RankMemory, ...]":
    """Predicted memory of each rank in one step of the plan."""
    from planner.runtime import RankMemory

    memory, holding = [], score.plan_memory
    for rank, peak in enumerate(score.memory.peaks):
        parts, share = holding.static_footprint(rank), 1.0 + holding.accounting(rank).fragmentation
        held = float(parts.weights + parts.optimizer)
        passes = (peak - float(parts.outside_allocator)) / share
        update = float(parts.states + parts.update + parts.workspace)
        memory.append(RankMemory(held, passes, update, max(passes, update) * share, float(parts.outside_allocator)))
    return tuple(memory)


def fullest_rank(ranks: Sequence[PeakMemoryUse]) -> PeakMemoryUse:
    """The rank of the highest measured peak, the first of equals."""
    return max(ranks, key=lambda rank: rank.measured.peak)


def memory_uses(rank: PeakMemoryUse) -> Iterator[MemoryUse]:
    """Bytes at the start of the step, what passes and update add, and what the allocator does not give out."""
    expected = bytes_by_use(rank.predicted) if rank.predicted else {}
    for name, measured in bytes_by_use(rank.measured).items():
        yield MemoryUse(name, expected.get(name), measured)


def bytes_by_use(memory: "RankMemory") -> dict[str, float]:
    """Bytes by use."""
    return {
        "as the step begins": memory.held,
        "passes, on top of it": memory.passes - memory.held,
        "update, on top of it": memory.update - memory.held,
        "most at once": memory.peak,
        "reserved and unused": memory.reserved - memory.peak,
        "outside of the allocator": memory.outside,
    }
