"""Lower bounds over orders that keep the micro-batches' sequence, for both objectives (any sequence:
any_sequence_bound.py).

For a stage t, from the start of its first F, with R(k) the seconds from the start of F k there to the earliest start of
I k, through all later stages and back:

memory     Before I j starts, only so many forwards fit; before F k starts, enough I and W have to be done to make room
           for it. Whatever lies between I j and F k in every order is the least that F k waits after I j, and I k comes
           R(k) or more after F k. So each start follows from those before it.
work       After I j come all I and W from j on, and the forwards that did not fit before it; before the end of the last
           I comes everything but the W that memory lets a stage defer.
through    Stage s begins before stage t does, by the forward path of the first micro-batch, and ends later, by the
           backward path of the last.

A step cannot be shorter than the path to a stage, what that stage needs, and what comes after.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.orders.pipeline_problem import OrderObjective, PipelineProblem
from planner.orders.slot_timing import MEMORY_ROUNDING

RECENT_INPUTS = 16  # latest I that are considered before an F, beside the first
MEMORY_SLACK = 100 * MEMORY_ROUNDING  # of memory, relative: looser than what orders have to keep, also beside states
PRECISION = 1e-11  # relative: keeps a bound valid in spite of rounding in sums


@dataclass(frozen=True, slots=True)
class OrderBound:
    """A lower bound in seconds, and the argument that gives it."""

    seconds: float
    by: str


@dataclass(frozen=True, slots=True)
class StageNeeds:
    """Least seconds that a stage needs from the start of its first F."""

    until_end: float  # to the end of its last slot
    until_last_input: float  # to the end of its last I


@dataclass(frozen=True, slots=True)
class PipelinePaths:
    """What a pipeline's stages need, and the least seconds of the paths between them."""

    needs: list[StageNeeds]
    ahead: Callable[[int, int], float]  # from the first start on one stage to that on a later one
    back: Callable[[int, int], float]  # from the end of the last I on one stage to the last end on an earlier one
    after: tuple[float, ...]


def bound_fixed_sequence(pipeline: PipelineProblem, objective: OrderObjective) -> OrderBound:
    """The best lower bound over orders that keep the sequence."""
    needs = [stage_needs(pipeline, stage) for stage in range(pipeline.stages)]

    def ahead(first: int, last: int) -> float:
        return forward_path(pipeline, first, last)

    def back(last: int, first: int) -> float:
        return backward_path(pipeline, last, first) + pipeline.weight_grads[first][-1]

    return best_bound(PipelinePaths(needs, ahead, back, pipeline.tail_seconds), objective)


def best_bound(paths: PipelinePaths, objective: OrderObjective) -> OrderBound:
    """The greatest of the bounds for an objective, less the rounding of sums."""
    bounds = step_bounds(paths) if objective == "step" else span_bounds(paths)
    best = max(bounds, key=lambda each: each.seconds)
    return OrderBound(float(best.seconds) * (1 - PRECISION), best.by)


def span_bounds(paths: PipelinePaths) -> list[OrderBound]:
    """Bounds on the span of each stage: by itself, and through each later stage."""
    bounds = [OrderBound(need.until_end, f"stage {s}") for s, need in enumerate(paths.needs)]
    for first in range(len(paths.needs)):
        for through in range(first + 1, len(paths.needs)):
            seconds = paths.ahead(first, through) + paths.needs[through].until_last_input + paths.back(through, first)
            bounds.append(OrderBound(seconds, f"stage {first}, through stage {through}"))
    return bounds


def step_bounds(paths: PipelinePaths) -> list[OrderBound]:
    """Bounds on the step: path to each stage, its needs, and what comes after on it or on an earlier stage."""
    bounds = []
    for through, need in enumerate(paths.needs):
        start = paths.ahead(0, through)
        bounds.append(OrderBound(start + need.until_end + paths.after[through], f"stage {through}"))
        for last in range(through):
            behind = paths.back(through, last) + paths.after[last]
            bounds.append(OrderBound(start + need.until_last_input + behind, f"stage {through}, then stage {last}"))
    return bounds


def forward_path(pipeline: PipelineProblem, first: int, last: int, k: int = 0) -> float:
    """Seconds from the start of F k on one stage to its earliest start on a later one."""
    return sum(pipeline.forward[s][k] + pipeline.forward_sends[s][k] for s in range(first, last))


def backward_path(pipeline: PipelineProblem, last: int, first: int, k: int = -1) -> float:
    """Seconds from the end of I k on one stage to its earliest end on an earlier one."""
    return sum(pipeline.backward_sends[s][k] + pipeline.input_grads[s][k] for s in range(first, last))


def round_trip(pipeline: PipelineProblem, stage: int, k: int) -> float:
    """Seconds from the start of F k on a stage to the earliest start of I k there."""
    last = pipeline.stages - 1
    turn = forward_path(pipeline, stage, last, k) + pipeline.forward[last][k]
    return (
        turn + backward_path(pipeline, last, stage, k) + pipeline.input_grads[last][k] - pipeline.input_grads[stage][k]
    )


def stage_needs(pipeline: PipelineProblem, s: int) -> StageNeeds:
    """Seconds that a stage needs: earliest starts of every F and I, each from those before it, and the work left."""
    m, sums = pipeline.micro_batches, RunningSums(pipeline, s)
    start, inputs = 0.0, np.zeros(m)
    for k in range(m):
        if k:
            start = max(start + pipeline.forward[s][k - 1], sums.earliest_forward(k, inputs))
        back = start + round_trip(pipeline, s, k)
        inputs[k] = max(back, inputs[k - 1] + pipeline.input_grads[s][k - 1]) if k else back
    left = inputs + (sums.forward[m] - sums.forward[sums.forwards_fitting]) + sums.inputs[m] - sums.inputs[:m]
    weights, deferrable = sums.weights[m] - sums.weights[:m], deferrable_weight_seconds(pipeline, s)
    last, work = inputs[-1] + pipeline.input_grads[s][-1], pipeline.stage_seconds[s]
    every = max(float((left + weights).max()), last + pipeline.weight_grads[s][-1], work)
    return StageNeeds(every, max(last, float((left + np.maximum(weights - deferrable, 0.0)).max()), work - deferrable))


class RunningSums:
    """Running sums over a stage's micro-batches, and what its memory admits."""

    def __init__(self, pipeline: PipelineProblem, s: int) -> None:
        columns = (
            pipeline.forward[s],
            pipeline.input_grads[s],
            pipeline.weight_grads[s],
            pipeline.activations[s],
            pipeline.kept_for_weights[s],
        )
        self.forward, self.inputs, self.weights, self.held, self.kept = (np.cumsum((0.0, *each)) for each in columns)
        self.cap = pipeline.capacity[s] * (1 + MEMORY_SLACK)
        # F that can have started before each I: as many as fit beside it once all earlier ones are released.
        self.forwards_fitting = np.searchsorted(self.held, self.held[:-1] + self.cap, "right") - 1

    def earliest_forward(self, k: int, inputs: NDArray[np.float64]) -> float:
        """Earliest start of F k, given those of I: memory determines which I and W have to be done by then."""
        # The first micro-batch whose I can be outstanding by then: all before it are done.
        min_done = int(np.searchsorted(self.held, self.held[k + 1] - self.cap))
        done = np.arange(min_done, k + 1)  # numbers of I done; below, for each the fewest W
        free = self.cap - (self.held[k + 1] - self.held[done])
        weights = np.minimum(np.searchsorted(self.kept, self.kept[done] - free), done)
        start = float(self.forward[k] + (self.inputs[done] + self.weights[weights]).min())
        if not min_done:
            return start
        j = np.array((0, *range(max(1, min_done - RECENT_INPUTS), min_done)))[:, None]
        between = self.inputs[done] - self.inputs[j] + np.maximum(0.0, self.weights[weights] - self.weights[j])
        # F that did not fit before I j
        others = np.maximum(0.0, self.forward[k] - self.forward[self.forwards_fitting[j[:, 0]]])
        return max(start, float((inputs[j[:, 0]] + between.min(axis=1) + others).max()))


def deferrable_weight_seconds(pipeline: PipelineProblem, s: int) -> float:
    """The most seconds of W that can be outstanding when the last I ends, its own included."""
    # The last micro-batch is held in full while its I runs
    free = pipeline.capacity[s] * (1 + MEMORY_SLACK) - pipeline.activations[s][-1]
    seconds = pipeline.weight_grads[s][-1]
    for k in range(pipeline.micro_batches - 2, -1, -1):
        free -= pipeline.kept_for_weights[s][k]
        if free < 0:
            break
        seconds += pipeline.weight_grads[s][k]
    return seconds
