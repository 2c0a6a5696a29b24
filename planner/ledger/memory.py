"""Predicted beside measured: what a GPU's memory was used for.

A plan has no word for a step's parts as torch counts them, so each is made of the parts of its memory model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.plan.model import Plan
from planner.verify.score import Score

if TYPE_CHECKING:
    from planner.runtime import RankMemory


@dataclass(frozen=True, slots=True)
class Used:
    """One rank in the step in which it held most."""

    rank: int
    measured: "RankMemory"
    predicted: "RankMemory | None"  # of the same step; None: the plan has no prices


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one kind."""

    name: str
    predicted: float | None
    measured: float


def used(plan: Plan, steps: Sequence[tuple[Sequence["RankMemory"], Score | None]]) -> tuple[Used, ...]:
    """Every rank, by the steps in which memory was counted; none if it was in no step."""
    counted = [(ranks, predicted(plan, score) if score else None) for ranks, score in steps if ranks]
    most = []
    for rank in range(plan.size if counted else 0):
        ranks, expected = max(counted, key=lambda step: step[0][rank].peak)
        most.append(Used(rank, ranks[rank], expected[rank] if expected else None))
    return tuple(most)


def predicted(plan: Plan, score: Score) -> "tuple[RankMemory, ...]":
    """Each rank in one step, as the plan has it."""
    from planner.runtime import RankMemory

    made, holding = [], score.holding
    for rank, peak in enumerate(score.memory.peaks):
        parts, share = holding.fixed(rank), 1.0 + holding.accounting(rank).fragmentation
        held = float(parts.weights + parts.optimizer)
        passes, update = (peak - float(parts.outside)) / share, float(parts.states + parts.update + parts.workspace)
        made.append(RankMemory(held, passes, update, max(passes, update) * share, float(parts.outside)))
    return tuple(made)


def holds_most(ranks: Sequence[Used]) -> Used:
    """The rank that held most; the first of these."""
    return max(ranks, key=lambda rank: rank.measured.peak)


def parts(rank: Used) -> Iterator[Part]:
    """What it began its step with, what came to that, and what torch did not give out."""
    expected = amounts(rank.predicted) if rank.predicted else {}
    for name, measured in amounts(rank.measured).items():
        yield Part(name, expected.get(name), measured)


def amounts(memory: "RankMemory") -> dict[str, float]:
    """By kind."""
    return {
        "as the step begins": memory.held,
        "passes, on top of it": memory.passes - memory.held,
        "update, on top of it": memory.update - memory.held,
        "most at once": memory.peak,
        "reserved and unused": memory.reserved - memory.peak,
        "outside of the allocator": memory.outside,
    }
