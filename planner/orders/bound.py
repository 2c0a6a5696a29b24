"""What no order that keeps the micro-batches' sequence can beat, for both objectives (of any sequence: anyhow.py).

Of a stage t, from the start of its first F, with R(k) the seconds from the start of F k there to the earliest start
of I k, through all stages behind it and back:

memory     Before I j starts, only so many forwards fit; before F k starts, so many I and W have to be done as make
           room for it. What lies between I j and F k in every order is the least that F k waits for behind I j, and I k
           comes R(k) or more behind F k. So each start follows from those before it.
work       Behind I j come all I and W from j on, and the forwards that did not fit before it; before the end of the
           last I all but the W that memory lets a stage put off.
through    Stage s begins before stage t does, by the way of the first micro-batch, and ends later, by that of the last.

A step cannot be shorter than the way to a stage, what that stage needs, and what comes after.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.orders.problem import Objective, Pipeline
from planner.orders.timing import ROUNDING

WINDOW = 16  # how many of the latest I are looked at before an F, beside the first
SLACK = 100 * ROUNDING  # of memory, relative: looser than orders are held to, beside states as well
PRECISION = 1e-11  # of seconds: a bound stays one in spite of how sums are rounded


@dataclass(frozen=True, slots=True)
class Floor:
    """Seconds, and what makes them so many."""

    seconds: float
    by: str


@dataclass(frozen=True, slots=True)
class Needs:
    """Seconds that a stage needs from the start of its first F."""

    all: float  # to the end of its last slot
    inputs: float  # to the end of its last I


@dataclass(frozen=True, slots=True)
class Ways:
    """What a pipeline's stages need, and the seconds between them at the least."""

    needs: list[Needs]
    ahead: Callable[[int, int], float]  # from the first start on one stage to that on a later one
    back: Callable[[int, int], float]  # from the end of the last I on one stage to the last end on an earlier one
    after: tuple[float, ...]


def floor_of(pipeline: Pipeline, objective: Objective) -> Floor:
    """The best of these bounds."""
    needs = [needs_of(pipeline, stage) for stage in range(pipeline.stages)]

    def ahead(first: int, last: int) -> float:
        return way(pipeline, first, last)

    def back(last: int, first: int) -> float:
        return way_back(pipeline, last, first) + pipeline.weights[first][-1]

    return best_of(Ways(needs, ahead, back, pipeline.after), objective)


def best_of(ways: Ways, objective: Objective) -> Floor:
    found = step_floors(ways) if objective == "step" else span_floors(ways)
    best = max(found, key=lambda floor: floor.seconds)
    return Floor(float(best.seconds) * (1 - PRECISION), best.by)


def span_floors(ways: Ways) -> list[Floor]:
    """Of each stage by itself, and through each stage behind it."""
    found = [Floor(need.all, f"stage {s}") for s, need in enumerate(ways.needs)]
    for first in range(len(ways.needs)):
        for through in range(first + 1, len(ways.needs)):
            seconds = ways.ahead(first, through) + ways.needs[through].inputs + ways.back(through, first)
            found.append(Floor(seconds, f"stage {first}, through stage {through}"))
    return found


def step_floors(ways: Ways) -> list[Floor]:
    """The way to each stage, what it needs, and what comes after on it or on one before it."""
    found = []
    for through, need in enumerate(ways.needs):
        start = ways.ahead(0, through)
        found.append(Floor(start + need.all + ways.after[through], f"stage {through}"))
        for last in range(through):
            behind = ways.back(through, last) + ways.after[last]
            found.append(Floor(start + need.inputs + behind, f"stage {through}, then stage {last}"))
    return found


def way(pipeline: Pipeline, first: int, last: int, k: int = 0) -> float:
    """From the start of F on one stage to its earliest start on a later one."""
    return sum(pipeline.forward[s][k] + pipeline.ahead[s][k] for s in range(first, last))


def way_back(pipeline: Pipeline, last: int, first: int, k: int = -1) -> float:
    """From the end of I on one stage to its earliest end on an earlier one."""
    return sum(pipeline.back[s][k] + pipeline.inputs[s][k] for s in range(first, last))


def round_trip(pipeline: Pipeline, stage: int, k: int) -> float:
    """From the start of F on a stage to the earliest start of its I there."""
    last = pipeline.stages - 1
    turn = way(pipeline, stage, last, k) + pipeline.forward[last][k]
    return turn + way_back(pipeline, last, stage, k) + pipeline.inputs[last][k] - pipeline.inputs[stage][k]


def needs_of(pipeline: Pipeline, s: int) -> Needs:
    """The earliest start of every F and every I, each from those before it; then what is left."""
    m, sums = pipeline.micro_batches, Sums(pipeline, s)
    start, inputs = 0.0, np.zeros(m)
    for k in range(m):
        if k:
            start = max(start + pipeline.forward[s][k - 1], sums.after(k, inputs))
        back = start + round_trip(pipeline, s, k)
        inputs[k] = max(back, inputs[k - 1] + pipeline.inputs[s][k - 1]) if k else back
    left = inputs + (sums.forward[m] - sums.forward[sums.fit]) + sums.inputs[m] - sums.inputs[:m]
    weights, late = sums.weights[m] - sums.weights[:m], put_off(pipeline, s)
    last, work = inputs[-1] + pipeline.inputs[s][-1], pipeline.work[s]
    every = max(float((left + weights).max()), last + pipeline.weights[s][-1], work)
    return Needs(every, max(last, float((left + np.maximum(weights - late, 0.0)).max()), work - late))


class Sums:
    """Running sums over a stage's micro-batches, and what its memory makes of them."""

    def __init__(self, pipeline: Pipeline, s: int) -> None:
        rows = (pipeline.forward[s], pipeline.inputs[s], pipeline.weights[s], pipeline.held[s], pipeline.kept[s])
        self.forward, self.inputs, self.weights, self.held, self.kept = (np.cumsum((0.0, *row)) for row in rows)
        self.cap = pipeline.cap[s] * (1 + SLACK)
        # How many F can have started before each I: as many as fit beside it once all before it are gone.
        self.fit = np.searchsorted(self.held, self.held[:-1] + self.cap, "right") - 1

    def after(self, k: int, inputs: NDArray[np.float64]) -> float:
        """The earliest start of F k, from those of I: memory says which I and W have to be done by then."""
        whole = int(np.searchsorted(self.held, self.held[k + 1] - self.cap))  # the first that can be untouched by then
        done = np.arange(whole, k + 1)  # so many I, and for each the fewest W
        free = self.cap - (self.held[k + 1] - self.held[done])
        weights = np.minimum(np.searchsorted(self.kept, self.kept[done] - free), done)
        start = float(self.forward[k] + (self.inputs[done] + self.weights[weights]).min())
        if not whole:
            return start
        j = np.array((0, *range(max(1, whole - WINDOW), whole)))[:, None]
        between = self.inputs[done] - self.inputs[j] + np.maximum(0.0, self.weights[weights] - self.weights[j])
        others = np.maximum(0.0, self.forward[k] - self.forward[self.fit[j[:, 0]]])  # F that did not fit before I j
        return max(start, float((inputs[j[:, 0]] + between.min(axis=1) + others).max()))


def put_off(pipeline: Pipeline, s: int) -> float:
    """The most seconds of W that can be left when the last I ends, its own included."""
    free = pipeline.cap[s] * (1 + SLACK) - pipeline.held[s][-1]  # the last I's own is still whole while it runs
    seconds = pipeline.weights[s][-1]
    for k in range(pipeline.micro_batches - 2, -1, -1):
        free -= pipeline.kept[s][k]
        if free < 0:
            break
        seconds += pipeline.weights[s][k]
    return seconds
