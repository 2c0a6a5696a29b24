"""How many micro-batches' activations a pipeline rank holds after each of its slots, and at its peak."""

from planner.plan.schedules.zero_bubble import KEPT_FOR_WEIGHTS


def micro_batches_in_flight(slots, chunks=1, for_weights=KEPT_FOR_WEIGHTS):
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


def peak_in_flight(slots, chunks=1, for_weights=KEPT_FOR_WEIGHTS):
    """Return the most micro-batches in flight after any slot."""
    return max(micro_batches_in_flight(slots, chunks, for_weights), default=0.0)
