"""What no order can beat, whatever sequence the micro-batches come in: each stage its own, and F, I and W each theirs.

Where micro-batches are alike on each stage, sequence means nothing. Call the k-th F to start on a stage F k, and I and
W likewise. Of the k + 1 micro-batches that have begun on stage s + 1 by its F k, all have ended on stage s, so its
F k ends before that of stage s + 1 starts; the same holds back, and from I to W; seconds and bytes are the same. So
every order is one that keeps the sequence, and the bound of those holds (bound.py).

Elsewhere that argument is kept with the least that any micro-batches can be. With low(n) the sum of the n smallest:

starts     The k-th F starts low F(k) or more behind the first; of the k + 1 first I one belongs to a micro-batch whose
           F was the k-th or later, so the k-th I starts the least R (there, through all stages behind and back) after
           the k-th F or later.
memory     When the k-th F starts, d I and w W are done, low held(k + 1 − d) + low kept(d − w) ≤ cap; d I and w W take
           low I(d) + low W(w) or more. Behind the j-th I, for j below the least such d, d − j I and w − j W come first.
work       Before the j-th I starts only so much F can have run as memory holds, as a fraction of one too: what is held
           is at most the cap and what the j done have given back. Of I and W at most j are done. All else comes after.
holding    A micro-batch is held whole from the start of its F for R and its I, and what is kept of it for its W. In
           byte-seconds all that is at most the cap times what the stage needs.
put off    While the last I runs its micro-batch is held whole, so the W left by then keep at most the rest of the cap.
ends       The way to a stage is the least of any micro-batch's, and so is the way back and the W behind it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.orders.bound import SLACK, WINDOW, Floor, Needs, Ways, best_of, floor_of
from planner.orders.problem import Objective, Pipeline

Floats = NDArray[np.float64]


def floor_of_any(pipeline: Pipeline, objective: Objective) -> Floor:
    """For orders of any sequence; that of orders in sequence where micro-batches are alike."""
    if alike(pipeline):
        return floor_of(pipeline, objective)
    forward, back = ways_of(pipeline)
    weights = np.array(pipeline.weights)

    def ahead(first: int, last: int) -> float:
        return float((forward[last] - forward[first]).min())

    def behind(last: int, first: int) -> float:
        return float((back[last] - back[first] + weights[first]).min())

    last = pipeline.stages - 1
    turn = np.array(pipeline.forward[last]) + np.array(pipeline.inputs[last])
    needs = []
    for s in range(pipeline.stages):
        trips = forward[last] - forward[s] + turn + back[last] - back[s]  # from the start of each F to the end of I
        least = needs_of_any(Least.of(pipeline, s), float((trips - np.array(pipeline.inputs[s])).min()))
        inputs, every = holding(pipeline, s, trips)
        needs.append(Needs(max(least.all, every), max(least.inputs, inputs)))
    return best_of(Ways(needs, ahead, behind, pipeline.after), objective)


def alike(pipeline: Pipeline) -> bool:
    """Whether a micro-batch is like any other on each stage."""
    tables = (
        pipeline.forward,
        pipeline.inputs,
        pipeline.weights,
        pipeline.ahead,
        pipeline.back,
        pipeline.held,
        pipeline.kept,
    )
    return all(min(row) == max(row) for rows in tables for row in rows)


def ways_of(pipeline: Pipeline) -> tuple[Floats, Floats]:
    """Of each micro-batch from stage 0: seconds to each stage ahead, and from each stage back."""
    there = np.zeros((pipeline.stages, pipeline.micro_batches))
    back = there.copy()
    if pipeline.stages > 1:
        there[1:] = np.cumsum(np.array(pipeline.forward[:-1]) + np.array(pipeline.ahead), axis=0)
        back[1:] = np.cumsum(np.array(pipeline.inputs[:-1]) + np.array(pipeline.back), axis=0)
    return there, back


def low(values: Floats) -> Floats:
    """The least that so many of these add up to: none, one, …"""
    return np.concatenate(((0.0,), np.cumsum(np.sort(values))))


def holding(pipeline: Pipeline, s: int, trips: Floats) -> tuple[float, float]:
    """Seconds in which a stage can hold all that it has to hold for so long: to the end of the last I, and of all."""
    held, kept, weights = (np.array(rows[s]) for rows in (pipeline.held, pipeline.kept, pipeline.weights))
    cap = pipeline.cap[s] * (1 + SLACK)
    if not cap > 0:
        return 0.0, 0.0
    inputs = float(held @ trips)
    return inputs / cap, (inputs + float(kept @ weights)) / cap


class Load(NamedTuple):
    """The most seconds that memory holds of a row, in fractions where need be: the densest first."""

    room: Floats
    seconds: Floats

    @classmethod
    def of(cls, seconds: Floats, sizes: Floats) -> "Load":
        dense = np.argsort(-seconds / np.maximum(sizes, 1e-200), kind="stable")
        room, total = (np.concatenate(((0.0,), np.cumsum(row[dense]))) for row in (sizes, seconds))
        return cls(room, total)

    def most(self, room: Floats) -> Floats:
        """Nothing in no room, but for what takes none. Where rooms are equal the last counts."""
        at = np.clip(np.searchsorted(self.room, room, "right") - 1, 0, len(self.room) - 1)
        following = np.minimum(at + 1, len(self.room) - 1)
        size = self.room[following] - self.room[at]
        part = np.where(size > 0, (room - self.room[at]) / np.where(size > 0, size, 1.0), 0.0)
        gained: Floats = self.seconds[at] + np.clip(part, 0.0, 1.0) * (self.seconds[following] - self.seconds[at])
        return gained


class Least(NamedTuple):
    """Of one stage: least sums, the most that fits, and all that there is to do."""

    forward: Floats
    inputs: Floats
    weights: Floats
    held: Floats
    kept: Floats
    cap: float
    ahead: Floats  # the most F before each I
    late: float  # the most W behind the last I

    @classmethod
    def of(cls, pipeline: Pipeline, s: int) -> "Least":
        rows = (pipeline.forward, pipeline.inputs, pipeline.weights, pipeline.held, pipeline.kept)
        forward, inputs, weights, held, kept = (np.array(row[s]) for row in rows)
        cap = pipeline.cap[s] * (1 + SLACK)
        given = np.concatenate(((0.0,), np.cumsum(np.sort(held)[::-1])))[:-1]  # by the most that those done can be
        late = weights + Load.of(weights, kept).most(cap - held)
        ahead = Load.of(forward, held).most(cap + given)
        sums = low(forward), low(inputs), low(weights), low(held), low(kept)
        return cls(*sums, cap, ahead, float(min(late.max(), weights.sum())))

    def after(self, k: int, inputs: Floats) -> float:
        """The earliest start of the k-th F, from those of I."""
        fit = int(np.searchsorted(self.held, self.cap, "right")) - 1  # micro-batches, at most
        whole = max(0, k + 1 - fit)  # the fewest I done by then
        done = np.arange(whole, k + 1)
        free = self.cap - self.held[k + 1 - done]
        waiting = np.searchsorted(self.kept, free, "right") - 1  # W, at most
        weights = np.clip(done - waiting, 0, done)
        start = float(self.forward[k] + (self.inputs[done] + self.weights[weights]).min())
        if not whole:
            return start
        j = np.array((0, *range(max(1, whole - WINDOW), whole)))
        between = self.inputs[done - j[:, None]] + self.weights[np.maximum(0, weights - j[:, None])]
        others = self.forward[np.maximum(0, k - j - fit)]  # F that did not fit before I j
        return max(start, float((inputs[j] + between.min(axis=1) + others).max()))


def needs_of_any(least: Least, trip: float) -> Needs:
    """The earliest starts, each from those before it; then what is left. `trip`: the least R."""
    m = len(least.forward) - 1
    start, inputs = 0.0, np.zeros(m)
    for k in range(m):
        if k:
            start = max(start + least.forward[1], least.after(k, inputs))
        back = start + trip
        inputs[k] = max(back, inputs[k - 1] + least.inputs[1]) if k else back
    rest = m - np.arange(m)
    left = inputs + np.maximum(0.0, least.forward[m] - least.ahead) + least.inputs[rest]
    weights, work = least.weights[rest], least.forward[m] + least.inputs[m] + least.weights[m]
    last = inputs[-1] + least.inputs[1]
    every = max(float((left + weights).max()), float(last + least.weights[1]), float(work))
    before = float((left + np.maximum(weights - least.late, 0.0)).max())
    return Needs(every, max(float(last), before, float(work - least.late)))
