"""Earliest and latest starts of the slots of an order, the activations that it holds, and its objective in seconds."""

from math import inf
from typing import NamedTuple

from planner.orders.pipeline_problem import Order, OrderObjective, PipelineProblem

MEMORY_ROUNDING = 1e-9  # of memory, relative


class SlotTimes(NamedTuple):
    """Seconds from the start of the step, by stage."""

    starts: list[list[float]]  # of each slot
    ends: list[float]  # of each stage's last slot


def slot_times(pipeline: PipelineProblem, order: Order) -> SlotTimes | None:
    """Earliest starts of every slot; None when the order deadlocks."""
    p, m = pipeline.stages, pipeline.micro_batches
    arrived = [[0.0] * m, *([inf] * m for _ in range(p - 1))]
    returned = [[inf] * m for _ in range(p)]
    state = TimingState(pipeline, arrived, returned, [[] for _ in range(p)], [0.0] * p, [[0, 0, 0] for _ in range(p)])
    while any([state.advance(s, slots) for s, slots in enumerate(order)]):
        pass
    return SlotTimes(state.starts, state.ends) if all(len(began) == 3 * m for began in state.starts) else None


class TimingState(NamedTuple):
    """State of the timing: how far each stage has come."""

    pipeline: PipelineProblem
    activations_ready: list[list[float]]  # seconds at which activations arrive, (stages, micro_batches)
    gradients_ready: list[list[float]]  # seconds at which gradients arrive, (stages, micro_batches)
    starts: list[list[float]]
    ends: list[float]
    done: list[list[int]]  # F, I, W

    def advance(self, s: int, slots: str) -> bool:
        """Run a stage's slots as far as their inputs have arrived; returns whether any ran."""
        pipeline, last, began, now = self.pipeline, self.pipeline.stages - 1, self.starts[s], self.ends[s]
        forwards, inputs, weights = self.done[s]
        first = len(began)
        for letter in slots[first:]:
            if letter == "W":
                if weights >= inputs:
                    break
                began.append(now)
                now += pipeline.weight_grads[s][weights]
                weights += 1
                continue
            ready = self.activations_ready[s][forwards] if letter == "F" else self.gradients_ready[s][inputs]
            if ready == inf:
                break
            now = ready if ready > now else now
            began.append(now)
            if letter == "F":
                now += pipeline.forward[s][forwards]
                if s < last:
                    self.activations_ready[s + 1][forwards] = now + pipeline.forward_sends[s][forwards]
                else:
                    self.gradients_ready[s][forwards] = now
                forwards += 1
            else:
                now += pipeline.input_grads[s][inputs]
                if s:
                    self.gradients_ready[s - 1][inputs] = now + pipeline.backward_sends[s - 1][inputs]
                inputs += 1
        self.ends[s], self.done[s] = now, [forwards, inputs, weights]
        return len(began) > first


def latest_starts(pipeline: PipelineProblem, order: Order, ends: list[float]) -> list[float]:
    """Latest start of each stage's first slot, for stages that end at `ends`."""
    p, m, last = pipeline.stages, pipeline.micro_batches, pipeline.stages - 1
    leaves = [[-inf] * m for _ in range(last)] + [[inf] * m]  # latest seconds at which activations have to leave
    returns = [[inf] * m, *([-inf] * m for _ in range(last))]  # and gradients
    now, at = list(ends), [3 * m - 1] * p
    left = [[m, m, m] for _ in range(p)]
    moved = True
    while moved:
        moved = False
        for s in range(p):
            slots, time = order[s], now[s]
            forwards, inputs, weights = left[s]
            place = at[s]
            while place >= 0:
                letter = slots[place]
                if letter == "F":
                    limit = leaves[s][forwards - 1]
                    if limit == -inf:
                        break
                    forwards -= 1
                    time = (limit if limit < time else time) - pipeline.forward[s][forwards]
                    if s:
                        leaves[s - 1][forwards] = time - pipeline.forward_sends[s - 1][forwards]
                elif letter == "I":
                    limit = returns[s][inputs - 1]
                    if limit == -inf:
                        break
                    inputs -= 1
                    time = (limit if limit < time else time) - pipeline.input_grads[s][inputs]
                    if s < last:
                        returns[s + 1][inputs] = time - pipeline.backward_sends[s][inputs]
                else:
                    weights -= 1
                    time -= pipeline.weight_grads[s][weights]
                place -= 1
            moved = moved or place < at[s]
            now[s], at[s], left[s] = time, place, [forwards, inputs, weights]
    return now


def stage_spans(pipeline: PipelineProblem, order: Order, timing: SlotTimes) -> list[float]:
    """Seconds of each stage from first start to last end, its first slots as late as they can be without a delay."""
    latest = latest_starts(pipeline, order, timing.ends)
    return [end - start for end, start in zip(timing.ends, latest, strict=True)]


def objective_seconds(pipeline: PipelineProblem, order: Order, objective: OrderObjective) -> float:
    """Objective of the order in seconds; infinite where it deadlocks."""
    timing = slot_times(pipeline, order)
    if timing is None:
        return inf
    if objective == "span":
        return max(stage_spans(pipeline, order, timing))
    return max(end + after for end, after in zip(timing.ends, pipeline.tail_seconds, strict=True))


def peak_activations(pipeline: PipelineProblem, order: Order, stage: int) -> float:
    """The most activations that a stage holds at once."""
    held, kept = pipeline.activations[stage], pipeline.kept_for_weights[stage]
    done, now, peak = {"F": 0, "I": 0, "W": 0}, 0.0, 0.0
    for letter in order[stage]:
        k = done[letter]
        now += held[k] if letter == "F" else kept[k] - held[k] if letter == "I" else -kept[k]
        done[letter] += 1
        peak = max(peak, now)
    return peak


def fits_memory(pipeline: PipelineProblem, order: Order) -> bool:
    """Whether no stage exceeds its capacity."""
    return all(
        peak_activations(pipeline, order, s) <= cap * (1 + MEMORY_ROUNDING) for s, cap in enumerate(pipeline.capacity)
    )
