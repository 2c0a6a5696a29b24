"""Texts of the pages: the sentence on a bound and its proof, and the degrees of groups."""

from collections import Counter
from collections.abc import Sequence

from planner.plan.plan_file import Assignment, Plan
from planner.scoring import BOUNDS, OPTIMAL_GAP, bounds_same_work
from planner.units import duration, percent


def relative_gap(value: float, bound: float) -> float:
    """Relative distance of a value from its lower bound."""
    return max(0.0, (value - bound) / bound) if bound > 0 else 0.0


def bound_text(value: float, bound: float, by: str) -> str:
    """A sentence that explains the bound and its proof to newcomers."""
    of_order = bounds_same_work(by)
    best = "any other order of the same work" if of_order else "any other plan of this job"
    proof = BOUNDS[by].proof if by in BOUNDS else by
    if relative_gap(value, bound) < OPTIMAL_GAP:
        return f"{best} takes at least as long: {proof}."
    gained = percent(relative_gap(value, bound))
    return (
        f"{best} takes at least {duration(bound)} under the same prices, so this one is at most {gained} above the "
        f"{'best order' if of_order else 'best possible'}. The proof ({by}): {proof}."
    )


def degrees_text(plan: Plan, placed: Sequence[Assignment]) -> str:
    """Degrees of the groups of a micro-batch: `32, 8×2, 4×3`."""
    counts = Counter(len(plan.groups[a.group].ranks) for a in placed)
    return ", ".join(f"{size}×{count}" if count > 1 else str(size) for size, count in sorted(counts.items())[::-1])
