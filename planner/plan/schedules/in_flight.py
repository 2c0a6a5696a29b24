"""Micro-batches in flight: how many micro-batches' activations a pipeline rank holds after each slot, and at its peak.

F allocates them and B frees them; I frees what W does not need, and W the rest. W needs the inputs of the linear layers
and the gradients of their outputs: 32 of the 34 bytes that each element of the hidden size keeps in a transformer layer
whose attention keeps no matrix (arXiv 2401.10241, table 2; the 34 in arXiv 2205.05198, section 4.1). That is counted
for a GPT layer: four linear layers, an MLP four times as wide. It is assumed of every model, though one with gates, few
key heads, or experts keeps another share from I to W.
"""

from collections.abc import Sequence

from planner.plan.schedules import Slot

KEPT_FOR_WEIGHTS = 32 / 34  # share of a forward's activations that is kept from I to W: of a GPT layer, assumed of all


def micro_batches_in_flight(
    slots: Sequence[Slot], chunks: int = 1, for_weights: float = KEPT_FOR_WEIGHTS
) -> list[float]:
    """Return the micro-batches in flight after each slot, in units of a micro-batch on all chunks of the rank.

    A forward without a backward keeps nothing.
    """
    with_backward = {(micro_batch, chunk) for phase, micro_batch, chunk in slots if phase in ("B", "I")}
    change = {"B": -1.0, "I": for_weights - 1.0, "W": -for_weights}
    after, current = [], 0.0
    for phase, micro_batch, chunk in slots:
        current += change.get(phase, 1.0 if (micro_batch, chunk) in with_backward else 0.0)
        after.append(current / chunks)
    return after


def peak_in_flight(slots: Sequence[Slot], chunks: int = 1, for_weights: float = KEPT_FOR_WEIGHTS) -> float:
    """Return the most micro-batches in flight after any slot."""
    return max(micro_batches_in_flight(slots, chunks, for_weights), default=0.0)
