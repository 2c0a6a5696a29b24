"""When the slots of an order begin, at the earliest and at the latest; what they hold; what the order is worth."""

from math import inf
from typing import NamedTuple

from planner.orders.problem import Objective, Order, Pipeline

ROUNDING = 1e-9  # of memory, relative


class Times(NamedTuple):
    """Seconds from the start of the step: of each stage, for each of its slots."""

    starts: list[list[float]]
    ends: list[float]  # of each stage's last slot


def times(pipeline: Pipeline, order: Order) -> Times | None:
    """Every slot as early as it can be; None when slots wait for each other in a circle."""
    p, m = pipeline.stages, pipeline.micro_batches
    arrived = [[0.0] * m, *([inf] * m for _ in range(p - 1))]
    returned = [[inf] * m for _ in range(p)]
    run = Run(pipeline, arrived, returned, [[] for _ in range(p)], [0.0] * p, [[0, 0, 0] for _ in range(p)])
    while any([run.advance(s, word) for s, word in enumerate(order)]):
        pass
    return Times(run.starts, run.ends) if all(len(began) == 3 * m for began in run.starts) else None


class Run(NamedTuple):
    """How far the stages have come."""

    pipeline: Pipeline
    arrived: list[list[float]]  # on each stage, when activations of each micro-batch are there
    returned: list[list[float]]  # and their gradients
    starts: list[list[float]]
    ends: list[float]
    done: list[list[int]]  # F, I, W

    def advance(self, s: int, word: str) -> bool:
        """As far as a stage can go with what has come; whether it went at all."""
        pipeline, last, began, now = self.pipeline, self.pipeline.stages - 1, self.starts[s], self.ends[s]
        forwards, inputs, weights = self.done[s]
        first = len(began)
        for letter in word[first:]:
            if letter == "W":
                if weights >= inputs:
                    break
                began.append(now)
                now += pipeline.weights[s][weights]
                weights += 1
                continue
            ready = self.arrived[s][forwards] if letter == "F" else self.returned[s][inputs]
            if ready == inf:
                break
            now = ready if ready > now else now
            began.append(now)
            if letter == "F":
                now += pipeline.forward[s][forwards]
                if s < last:
                    self.arrived[s + 1][forwards] = now + pipeline.ahead[s][forwards]
                else:
                    self.returned[s][forwards] = now
                forwards += 1
            else:
                now += pipeline.inputs[s][inputs]
                if s:
                    self.returned[s - 1][inputs] = now + pipeline.back[s - 1][inputs]
                inputs += 1
        self.ends[s], self.done[s] = now, [forwards, inputs, weights]
        return len(began) > first


def latest_starts(pipeline: Pipeline, order: Order, ends: list[float]) -> list[float]:
    """Of each stage's first slot, when every slot is as late as stages that end at `ends` allow."""
    p, m, last = pipeline.stages, pipeline.micro_batches, pipeline.stages - 1
    leaves = [[-inf] * m for _ in range(last)] + [[inf] * m]  # when activations have to leave, at the latest
    returns = [[inf] * m, *([-inf] * m for _ in range(last))]  # and their gradients
    now, at = list(ends), [3 * m - 1] * p
    left = [[m, m, m] for _ in range(p)]
    moved = True
    while moved:
        moved = False
        for s in range(p):
            word, time = order[s], now[s]
            forwards, inputs, weights = left[s]
            place = at[s]
            while place >= 0:
                letter = word[place]
                if letter == "F":
                    limit = leaves[s][forwards - 1]
                    if limit == -inf:
                        break
                    forwards -= 1
                    time = (limit if limit < time else time) - pipeline.forward[s][forwards]
                    if s:
                        leaves[s - 1][forwards] = time - pipeline.ahead[s - 1][forwards]
                elif letter == "I":
                    limit = returns[s][inputs - 1]
                    if limit == -inf:
                        break
                    inputs -= 1
                    time = (limit if limit < time else time) - pipeline.inputs[s][inputs]
                    if s < last:
                        returns[s + 1][inputs] = time - pipeline.back[s][inputs]
                else:
                    weights -= 1
                    time -= pipeline.weights[s][weights]
                place -= 1
            moved = moved or place < at[s]
            now[s], at[s], left[s] = time, place, [forwards, inputs, weights]
    return now


def stage_spans(pipeline: Pipeline, order: Order, found: Times) -> list[float]:
    """Of each stage, from first start to last end, when its first slots wait as long as nothing ends later for it."""
    return [end - start for end, start in zip(found.ends, latest_starts(pipeline, order, found.ends), strict=True)]


def seconds_of(pipeline: Pipeline, order: Order, objective: Objective) -> float:
    """What the order is worth; infinite where it stands still."""
    found = times(pipeline, order)
    if found is None:
        return inf
    if objective == "span":
        return max(stage_spans(pipeline, order, found))
    return max(end + after for end, after in zip(found.ends, pipeline.after, strict=True))


def held_peak(pipeline: Pipeline, order: Order, stage: int) -> float:
    """The most that a stage holds at once."""
    held, kept = pipeline.held[stage], pipeline.kept[stage]
    done, now, peak = {"F": 0, "I": 0, "W": 0}, 0.0, 0.0
    for letter in order[stage]:
        k = done[letter]
        now += held[k] if letter == "F" else kept[k] - held[k] if letter == "I" else -kept[k]
        done[letter] += 1
        peak = max(peak, now)
    return peak


def fits(pipeline: Pipeline, order: Order) -> bool:
    return all(held_peak(pipeline, order, s) <= cap * (1 + ROUNDING) for s, cap in enumerate(pipeline.cap))
