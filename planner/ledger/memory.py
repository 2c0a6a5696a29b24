"""Predicted beside measured: what a GPU's memory was used for.

A plan has no word for a step's parts as torch counts them, so each is made of what its models say. What stays from step
to step, and what an update takes: the static accounting. The peak of passes: the simulated curve. What the allocator
cannot use: a share of the peak, of that accounting. What lies outside of it: what the device has reserved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.plan.model import Plan
from planner.specs.cluster import kind_of
from planner.units import GIB
from planner.verify.held import lasting, updating
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

    stays, beside, facts = lasting(plan), updating(plan), plan.uses
    made = []
    for rank, passes in enumerate(score.memory.peaks):
        held = stays(rank)
        update = held + beside(rank)
        reserved = max(passes, update) * (1 + facts.prices.accounting.fragmentation)
        outside = facts.devices[kind_of(facts.cluster, rank)].reserved_gib * GIB
        made.append(RankMemory(held, passes, update, reserved, outside))
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
