"""Lower bounds over orders in any sequence of micro-batches; F, I and W of a stage may each have another sequence.

Where micro-batches are alike on each stage, their sequence does not matter. Call the k-th F to start on a stage F k,
and I and W likewise. Of the k + 1 micro-batches that have begun on stage s + 1 by its F k, all have ended on stage s,
so F k of stage s ends before F k of stage s + 1 starts; the same holds for the way back, and from I to W; seconds and
bytes are the same. So every order is one that keeps the sequence, and the bound for those holds
(fixed_sequence_bound.py).

Elsewhere that argument is kept with the least values of any micro-batches. With low(n) the sum of the n smallest:

starts     The k-th F starts low F(k) or more after the first. Of the first k + 1 I, one belongs to a micro-batch whose
           F was the k-th or later, so the k-th I starts at least the smallest R (the time through all later stages and
           back) after the k-th F.
memory     When the k-th F starts, d I and w W are done, with low held(k + 1 − d) + low kept(d − w) ≤ cap; d I and w W
           take low I(d) + low W(w) or more. For j below the smallest such d, d − j I and w − j W follow the j-th I.
work       Before the j-th I starts, only as much F can have run as memory holds, fractions of an F included:
           activations are at most the capacity and what the j done have released. At most j of I and W are done; all
           others follow.
holding    A micro-batch's activations are held in full from the start of its F for R and its I, and what W needs of
           them until its W ends. In byte-seconds that is at most the capacity times the seconds that the stage needs.
deferred   While the last I runs, its activations are held in full, so the W left by then keep at most the rest of the
           capacity.
ends       The path to a stage is the least of any micro-batch, and so are the path back and the W behind it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.orders.fixed_sequence_bound import (
    MEMORY_SLACK,
    RECENT_INPUTS,
    OrderBound,
    PipelinePaths,
    StageNeeds,
    best_bound,
    bound_fixed_sequence,
)
from planner.orders.pipeline_problem import OrderObjective, PipelineProblem

Floats = NDArray[np.float64]


def bound_any_sequence(pipeline: PipelineProblem, objective: OrderObjective) -> OrderBound:
    """Lower bound over orders in any sequence; that of the fixed sequence where micro-batches are alike."""
    if micro_batches_alike(pipeline):
        return bound_fixed_sequence(pipeline, objective)
    forward, back = path_seconds(pipeline)
    weights = np.array(pipeline.weight_grads)

    def ahead(first: int, last: int) -> float:
        return float((forward[last] - forward[first]).min())

    def behind(last: int, first: int) -> float:
        return float((back[last] - back[first] + weights[first]).min())

    last = pipeline.stages - 1
    turn = np.array(pipeline.forward[last]) + np.array(pipeline.input_grads[last])
    needs = []
    for s in range(pipeline.stages):
        trips = forward[last] - forward[s] + turn + back[last] - back[s]  # from the start of each F to the end of its I
        least = stage_needs_any(LeastSums.of(pipeline, s), float((trips - np.array(pipeline.input_grads[s])).min()))
        inputs, every = holding_seconds(pipeline, s, trips)
        needs.append(StageNeeds(max(least.until_end, every), max(least.until_last_input, inputs)))
    return best_bound(PipelinePaths(needs, ahead, behind, pipeline.tail_seconds), objective)


def micro_batches_alike(pipeline: PipelineProblem) -> bool:
    """Whether all micro-batches take and hold the same on each stage."""
    tables = (
        pipeline.forward,
        pipeline.input_grads,
        pipeline.weight_grads,
        pipeline.forward_sends,
        pipeline.backward_sends,
        pipeline.activations,
        pipeline.kept_for_weights,
    )
    return all(min(of_stage) == max(of_stage) for table in tables for of_stage in table)


def path_seconds(pipeline: PipelineProblem) -> tuple[Floats, Floats]:
    """Seconds of the path from stage 0 forward to each stage, and back from each stage: two (stages, micro_batches)."""
    forward = np.zeros((pipeline.stages, pipeline.micro_batches))
    back = forward.copy()
    if pipeline.stages > 1:
        forward[1:] = np.cumsum(np.array(pipeline.forward[:-1]) + np.array(pipeline.forward_sends), axis=0)
        back[1:] = np.cumsum(np.array(pipeline.input_grads[:-1]) + np.array(pipeline.backward_sends), axis=0)
    return forward, back


def least_sums(values: Floats) -> Floats:
    """Least sums of n values for n = 0, 1, …: (values + 1,)."""
    return np.concatenate(((0.0,), np.cumsum(np.sort(values))))


def holding_seconds(pipeline: PipelineProblem, s: int, trips: Floats) -> tuple[float, float]:
    """Least seconds of a stage by byte-seconds of activations: to the end of the last I, and to the end of all.

    `trips`: (micro_batches,) seconds from the start of F to the end of I.
    """
    held, kept, weights = (
        np.array(table[s]) for table in (pipeline.activations, pipeline.kept_for_weights, pipeline.weight_grads)
    )
    cap = pipeline.capacity[s] * (1 + MEMORY_SLACK)
    if not cap > 0:
        return 0.0, 0.0
    inputs = float(held @ trips)
    return inputs / cap, (inputs + float(kept @ weights)) / cap


class FractionalKnapsack(NamedTuple):
    """The most seconds of passes whose activations fit: a fractional knapsack, filled densest first."""

    capacity: Floats
    seconds: Floats

    @classmethod
    def of(cls, seconds: Floats, sizes: Floats) -> "FractionalKnapsack":
        dense = np.argsort(-seconds / np.maximum(sizes, 1e-200), kind="stable")
        room, total = (np.concatenate(((0.0,), np.cumsum(values[dense]))) for values in (sizes, seconds))
        return cls(room, total)

    def max_seconds(self, capacities: Floats) -> Floats:
        """Seconds that fit into each capacity; into none only what takes no memory."""
        at = np.clip(np.searchsorted(self.capacity, capacities, "right") - 1, 0, len(self.capacity) - 1)
        following = np.minimum(at + 1, len(self.capacity) - 1)
        size = self.capacity[following] - self.capacity[at]
        part = np.where(size > 0, (capacities - self.capacity[at]) / np.where(size > 0, size, 1.0), 0.0)
        gained: Floats = self.seconds[at] + np.clip(part, 0.0, 1.0) * (self.seconds[following] - self.seconds[at])
        return gained


class LeastSums(NamedTuple):
    """Least sums of one stage's passes and activations, and the most of them that memory admits."""

    forward: Floats
    inputs: Floats
    weights: Floats
    held: Floats
    kept: Floats
    cap: float
    forwards_ahead: Floats  # (micro_batches,) most seconds of F before each I
    deferrable_weights: float  # most seconds of W after the last I

    @classmethod
    def of(cls, pipeline: PipelineProblem, s: int) -> "LeastSums":
        tables = (
            pipeline.forward,
            pipeline.input_grads,
            pipeline.weight_grads,
            pipeline.activations,
            pipeline.kept_for_weights,
        )
        forward, inputs, weights, held, kept = (np.array(table[s]) for table in tables)
        cap = pipeline.capacity[s] * (1 + MEMORY_SLACK)
        given = np.concatenate(((0.0,), np.cumsum(np.sort(held)[::-1])))[:-1]  # released at most by those done
        deferrable = weights + FractionalKnapsack.of(weights, kept).max_seconds(cap - held)
        ahead = FractionalKnapsack.of(forward, held).max_seconds(cap + given)
        sums = least_sums(forward), least_sums(inputs), least_sums(weights), least_sums(held), least_sums(kept)
        return cls(*sums, cap, ahead, float(min(deferrable.max(), weights.sum())))

    def earliest_forward(self, k: int, inputs: Floats) -> float:
        """Earliest start of the k-th F, given those of the earlier I."""
        fit = int(np.searchsorted(self.held, self.cap, "right")) - 1  # most micro-batches that fit
        min_done = max(0, k + 1 - fit)  # fewest I done by then
        done = np.arange(min_done, k + 1)
        free = self.cap - self.held[k + 1 - done]
        waiting = np.searchsorted(self.kept, free, "right") - 1  # most W outstanding
        weights = np.clip(done - waiting, 0, done)
        start = float(self.forward[k] + (self.inputs[done] + self.weights[weights]).min())
        if not min_done:
            return start
        j = np.array((0, *range(max(1, min_done - RECENT_INPUTS), min_done)))
        between = self.inputs[done - j[:, None]] + self.weights[np.maximum(0, weights - j[:, None])]
        others = self.forward[np.maximum(0, k - j - fit)]  # F that did not fit before I j
        return max(start, float((inputs[j] + between.min(axis=1) + others).max()))


def stage_needs_any(least: LeastSums, trip: float) -> StageNeeds:
    """Seconds that a stage needs: earliest starts, each from those before it, and the work left. `trip`: least R."""
    m = len(least.forward) - 1
    start, inputs = 0.0, np.zeros(m)
    for k in range(m):
        if k:
            start = max(start + least.forward[1], least.earliest_forward(k, inputs))
        back = start + trip
        inputs[k] = max(back, inputs[k - 1] + least.inputs[1]) if k else back
    rest = m - np.arange(m)
    left = inputs + np.maximum(0.0, least.forward[m] - least.forwards_ahead) + least.inputs[rest]
    weights, work = least.weights[rest], least.forward[m] + least.inputs[m] + least.weights[m]
    last = inputs[-1] + least.inputs[1]
    every = max(float((left + weights).max()), float(last + least.weights[1]), float(work))
    before = float((left + np.maximum(weights - least.deferrable_weights, 0.0)).max())
    return StageNeeds(every, max(float(last), before, float(work - least.deferrable_weights)))
