"""How many micro-batches' activations a pipeline rank holds after each of its slots, and at its peak.

F takes them and B gives them back; I gives what W does not need, and W the rest. W needs what went into the linear
layers, and the gradients of what came out: 32 of the 34 bytes that each value of the hidden size leaves in a
transformer layer where attention keeps no matrix (arXiv 2401.10241, table 2; the 34 in arXiv 2205.05198, section 4.1).
That is of a GPT layer: four linear layers, a feed-forward four times as wide. For every model the same is assumed; one
with gates, few key heads, or experts keeps another share from I to W.
"""

from collections.abc import Sequence

from planner.plan.schedules import Slot

FOR_WEIGHTS = 32 / 34  # of what a forward leaves, kept from I to W: of a GPT layer, assumed of all


def held(slots: Sequence[Slot], chunks: int = 1, for_weights: float = FOR_WEIGHTS) -> list[float]:
    """Micro-batches of the whole rank after each slot; one of its chunks is a part of them.

    A forward that never comes back leaves nothing.
    """
    returned = {(row, chunk) for phase, row, chunk in slots if phase in ("B", "I")}
    given = {"B": -1.0, "I": for_weights - 1.0, "W": -for_weights}
    after, now = [], 0.0
    for phase, row, chunk in slots:
        now += given.get(phase, 1.0 if (row, chunk) in returned else 0.0)
        after.append(now / chunks)
    return after


def peak(slots: Sequence[Slot], chunks: int = 1, for_weights: float = FOR_WEIGHTS) -> float:
    return max(held(slots, chunks, for_weights), default=0.0)
