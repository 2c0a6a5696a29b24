"""List scheduling: whenever a stage is free, a priority rule picks its next slot among those that are ready."""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from planner.orders.pipeline_problem import Order, PipelineProblem

READY_WITHIN = 1e-12  # seconds: what becomes ready within this counts as ready


class PriorityRule(NamedTuple):
    """The priorities of stages: of each parameter one value per stage."""

    max_in_flight: tuple[int, ...]  # most micro-batches in flight between F and I
    forward_first_below: tuple[int, ...]  # in-flight micro-batches below which F goes before a ready I
    patience: tuple[float, ...]  # share of its own seconds by which a W may delay the next slot
    final_patience: tuple[float, ...]  # the same once no F is left


@dataclass(slots=True)
class ListScheduling:
    """State of the list scheduling: by stage what is done and held, when it is free, and what has arrived."""

    pipeline: PipelineProblem
    rule: PriorityRule
    activations_ready: list[list[float]]  # seconds at which activations arrive, (stages, micro_batches)
    gradients_ready: list[list[float]]  # seconds at which gradients arrive, (stages, micro_batches)
    done: list[list[int]]  # F, I, W
    activations: list[float]  # activations
    free_at: list[float]  # seconds
    words: list[list[str]]
    events: list[tuple[float, int]] = field(default_factory=list)

    def run(self) -> Order | None:
        """The order; None where memory deadlocks it, which cannot happen with room for one micro-batch or more."""
        self.events = [(0.0, s) for s in range(self.pipeline.stages)]
        while self.events:
            now, stage = heappop(self.events)
            if now >= self.free_at[stage] - READY_WITHIN and self.done[stage][2] < self.pipeline.micro_batches:
                letter = self.next_slot(stage, now)
                if letter:
                    self.run_slot(stage, letter, now)
        complete = all(done[2] == self.pipeline.micro_batches for done in self.done)
        return tuple("".join(word) for word in self.words) if complete else None

    def next_slot(self, s: int, now: float) -> str:
        """The letter of the next slot; empty, with an event for when there may be one, if the stage should wait."""
        m, rule = self.pipeline.micro_batches, self.rule
        forwards, inputs, weights = self.done[s]
        back = self.gradients_ready[s][inputs] if inputs < m else inf
        ahead, room = inf, False
        if forwards < m:
            room = self.activations[s] + self.pipeline.activations[s][forwards] <= self.pipeline.capacity[s] * (
                1 + 1e-12
            )
            if room and forwards - inputs < rule.max_in_flight[s]:
                ahead = self.activations_ready[s][forwards]
        if back <= now + READY_WITHIN:
            return "F" if ahead <= now + READY_WITHIN and forwards - inputs < rule.forward_first_below[s] else "I"
        if ahead <= now + READY_WITHIN:
            return "F"
        soon = min(back, ahead)
        if weights < inputs:
            takes = self.pipeline.weight_grads[s][weights]
            patience = rule.final_patience[s] if forwards == m else rule.patience[s]
            wait = patience if inputs + 1 < m else 0.0  # a delay of the last I is never made up
            full = forwards < m and not room and self.activations_ready[s][forwards] <= now + READY_WITHIN
            if full or inputs == m or now + takes <= soon + wait * takes + READY_WITHIN:
                return "W"
        if soon < inf:
            heappush(self.events, (soon, s))
        return ""

    def run_slot(self, s: int, letter: str, now: float) -> None:
        """Run a slot, and notify the stage that waits for it."""
        pipeline, done = self.pipeline, self.done[s]
        number = "FIW".index(letter)
        k = done[number]
        done[number] += 1
        self.words[s].append(letter)
        if letter == "F":
            end = now + pipeline.forward[s][k]
            self.activations[s] += pipeline.activations[s][k]
            if s + 1 < pipeline.stages:
                self.notify(self.activations_ready, s + 1, k, end + pipeline.forward_sends[s][k])
            else:
                self.gradients_ready[s][k] = end
        elif letter == "I":
            end = now + pipeline.input_grads[s][k]
            self.activations[s] -= pipeline.activations[s][k] - pipeline.kept_for_weights[s][k]
            if s:
                self.notify(self.gradients_ready, s - 1, k, end + pipeline.backward_sends[s - 1][k])
        else:
            end = now + pipeline.weight_grads[s][k]
            self.activations[s] -= pipeline.kept_for_weights[s][k]
        self.free_at[s] = end
        heappush(self.events, (end, s))

    def notify(self, arrivals: list[list[float]], stage: int, k: int, when: float) -> None:
        """Record an arrival, and wake the stage if it is idle."""
        arrivals[stage][k] = when
        if self.free_at[stage] <= when:
            heappush(self.events, (when, stage))


def greedy(pipeline: PipelineProblem, rule: PriorityRule) -> Order | None:
    """The order that a rule builds; None where it deadlocks."""
    p, m = pipeline.stages, pipeline.micro_batches
    arrived = [[0.0] * m, *([inf] * m for _ in range(p - 1))]
    returned = [[inf] * m for _ in range(p)]
    words: list[list[str]] = [[] for _ in range(p)]
    return ListScheduling(
        pipeline, rule, arrived, returned, [[0, 0, 0] for _ in range(p)], [0.0] * p, [0.0] * p, words
    ).run()
