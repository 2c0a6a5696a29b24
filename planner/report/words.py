"""Sentences of the pages: what proves a bound, what a certificate is worth, how a layout is spread."""

from collections import Counter
from collections.abc import Sequence

from planner.plan.model import Assignment, Layout, Plan
from planner.units import duration, percent
from planner.verify.score import CLOSED

PROOFS = {
    "area": "ranks cannot do more than one second of work a second, and the tokens need a number of micro-batches",
    "longest": "some micro-batch holds the sequence that takes longest even on its best degree",
    "coupled": "while long sequences hold their ranks, the others run out of room for tokens; every place of the "
    "longest ones is enumerated, and the rest flows",
    "streams": "where ranks meet once a step: how many micro-batches each can run in the time, and what these hold",
    "exact": "the exact integer program, solved to its end",
    "busiest_rank": "given who does what, no order of the tasks ends before the busiest rank has done its own",
}


def above(value: float, bound: float) -> float:
    return max(0.0, (value - bound) / bound) if bound > 0 else 0.0


def certificate(value: float, bound: float, by: str) -> str:
    """What the bound says, for somebody who has never met one."""
    best = "any other order of the same work" if by == "busiest_rank" else "any other plan of this job"
    proof = PROOFS.get(by, by)
    if above(value, bound) < CLOSED:
        return f"{best} takes at least as long: {proof}."
    gained = percent(above(value, bound))
    return (
        f"{best} takes at least {duration(bound)} under the same prices, so this one is at most {gained} above the "
        f"best possible. The proof ({by}): {proof}."
    )


def layout_text(layout: Layout) -> str:
    """`tp 8 · pp 4 · dp 2 · zero 1 · recompute none`: fastest dim first."""
    sizes = [*reversed(layout.mesh.items()), *layout.experts.items(), ("zero", layout.zero)]
    chunks = len(layout.stages) // layout.mesh.get("pp", 1)
    said = [f"{name} {size}" for name, size in sizes] + ([f"vpp {chunks}"] if chunks > 1 else [])
    return " · ".join([*said, f"recompute {layout.recompute}", layout.dtype])


def degrees_text(plan: Plan, placed: Sequence[Assignment]) -> str:
    """`32, 8×2, 4×3`: ranks of the groups of a micro-batch."""
    counts = Counter(len(plan.groups[a.group].ranks) for a in placed)
    return ", ".join(f"{size}×{count}" if count > 1 else str(size) for size, count in sorted(counts.items())[::-1])


def plural(count: int, word: str) -> str:
    """`1 step`, `2 steps`, `2 batches`."""
    return f"{count:,} {word}{'' if count == 1 else 'es' if word.endswith('ch') else 's'}"
