"""Sentences of the pages: what proves a bound, what a certificate is worth, of how many ranks groups are."""

from collections import Counter
from collections.abc import Sequence

from planner.plan.model import Assignment, Plan
from planner.units import duration, percent
from planner.verify.bounds import OF_SAME_WORK
from planner.verify.score import CLOSED

PROOFS = {
    "area": "ranks cannot do more than one second of work a second, and the tokens need a number of micro-batches",
    "longest": "some micro-batch holds the sequence that takes longest even on its best degree",
    "coupled": "while long sequences hold their ranks, the others run out of room for tokens; every place of the "
    "longest ones is enumerated, and the rest flows",
    "streams": "where ranks meet once a step: how many micro-batches each can run in the time, and what these hold",
    "exchange": "parameters are gathered and gradients reduced however items are placed, and what is computed "
    "meanwhile hides a part of that at most",
    "exact": "the exact integer program, solved to its end",
    "order": "given who does what in which stage, every order of the passes has to wait for the way through "
    "the stages, for a stage's own work, and for room in its memory, in whatever sequence micro-batches come",
    "busiest_rank": "given who does what, no order of the tasks ends before the busiest rank has done its own",
}


def above(value: float, bound: float) -> float:
    return max(0.0, (value - bound) / bound) if bound > 0 else 0.0


def certificate(value: float, bound: float, by: str) -> str:
    """What the bound says, for somebody who has never met one."""
    same_work = by in OF_SAME_WORK
    best = "any other order of the same work" if same_work else "any other plan of this job"
    proof = PROOFS.get(by, by)
    if above(value, bound) < CLOSED:
        return f"{best} takes at least as long: {proof}."
    gained = percent(above(value, bound))
    return (
        f"{best} takes at least {duration(bound)} under the same prices, so this one is at most {gained} above the "
        f"{'best order' if same_work else 'best possible'}. The proof ({by}): {proof}."
    )


def degrees_text(plan: Plan, placed: Sequence[Assignment]) -> str:
    """`32, 8×2, 4×3`: ranks of the groups of a micro-batch."""
    counts = Counter(len(plan.groups[a.group].ranks) for a in placed)
    return ", ".join(f"{size}×{count}" if count > 1 else str(size) for size, count in sorted(counts.items())[::-1])
