"""The order as a scheduling problem for CP-SAT: it proves small pipelines optimal and improves others.

Stages are machines; F, I and W of each micro-batch are intervals. From the start of F to the end of I a micro-batch
holds the activations that I releases, and to the end of W the rest. Micro-batches keep their sequence, so where they
are unlike, the result is proven for that sequence only and is no bound of a plan (any_sequence_bound.py).
"""

from dataclasses import dataclass

from planner.orders.fixed_sequence_bound import bound_fixed_sequence
from planner.orders.pipeline_problem import Order, OrderObjective, PipelineProblem
from planner.orders.slot_timing import slot_times
from planner.programs import (
    IntervalProblem,
    IntervalSchedule,
    MeasuredSpan,
    Precedence,
    Reservation,
    SolverLimits,
    schedule_intervals,
)

LETTERS = "FIW"


@dataclass(frozen=True, slots=True)
class ExactOrder:
    """The order found, if any, and a lower bound over orders in this sequence."""

    order: Order | None
    bound: float  # seconds
    proven: bool  # whether this order is optimal up to the rounding of the time grid


def solve_order_exactly(
    pipeline: PipelineProblem, objective: OrderObjective, limits: SolverLimits, known: Order | None = None
) -> ExactOrder:
    """Solve with CP-SAT, with a known order as the hint."""
    known_times = slot_times(pipeline, known) if known else None
    hint = hint_starts(pipeline, known, known_times.starts) if known and known_times else None
    solution = schedule_intervals(interval_problem(pipeline, objective), limits, hint)
    return ExactOrder(order_from_starts(pipeline, solution), solution.bound, solution.proven)


def interval_index(pipeline: PipelineProblem, letter: str, s: int, k: int) -> int:
    """Index of the interval of a pass of micro-batch k on stage s."""
    return (LETTERS.index(letter) * pipeline.stages + s) * pipeline.micro_batches + k


def interval_problem(pipeline: PipelineProblem, objective: OrderObjective) -> IntervalProblem:
    """The pipeline as intervals, precedences and reservations of memory."""
    p, m = pipeline.stages, pipeline.micro_batches
    tables = pipeline.forward, pipeline.input_grads, pipeline.weight_grads
    reservations = []
    for s in range(p):
        for k in range(m):
            kept, held = pipeline.kept_for_weights[s][k], pipeline.activations[s][k]
            first = interval_index(pipeline, "F", s, k)
            reservations += (
                [Reservation(first, interval_index(pipeline, "I", s, k), s, held - kept)] if held > kept else []
            )
            reservations += [Reservation(first, interval_index(pipeline, "W", s, k), s, kept)] if kept else []
    return IntervalProblem(
        seconds=tuple(table[s][k] for table in tables for s in range(p) for k in range(m)),
        machines=tuple(
            tuple(interval_index(pipeline, each, s, k) for each in LETTERS for k in range(m)) for s in range(p)
        ),
        precedences=tuple(precedences(pipeline)),
        reservations=tuple(reservations),
        capacities=pipeline.capacity,
        spans=tuple(
            MeasuredSpan(None, interval_index(pipeline, "W", s, m - 1), pipeline.tail_seconds[s])
            if objective == "step"
            else MeasuredSpan(interval_index(pipeline, "F", s, 0), interval_index(pipeline, "W", s, m - 1))
            for s in range(p)
        ),
        horizon=horizon(pipeline),
        lower_bound=bound_fixed_sequence(pipeline, objective).seconds,
    )


def precedences(pipeline: PipelineProblem) -> list[Precedence]:
    """Precedences of each micro-batch through the stages and back, and of successive micro-batches on each stage."""
    p, m = pipeline.stages, pipeline.micro_batches
    found = []
    for k in range(m):
        for s in range(p):
            forward, inputs, weights = (interval_index(pipeline, each, s, k) for each in LETTERS)
            found += [Precedence(forward, inputs), Precedence(inputs, weights)]
            if s + 1 < p:
                found.append(Precedence(forward, interval_index(pipeline, "F", s + 1, k), pipeline.forward_sends[s][k]))
                found.append(Precedence(interval_index(pipeline, "I", s + 1, k), inputs, pipeline.backward_sends[s][k]))
            if k + 1 < m:
                found += [Precedence(each, each + 1) for each in (forward, inputs, weights)]
    return found


def horizon(pipeline: PipelineProblem) -> float:
    """Seconds of one slot at a time: no order needs more."""
    return (
        sum(pipeline.stage_seconds)
        + sum(map(sum, pipeline.forward_sends))
        + sum(map(sum, pipeline.backward_sends))
        + max(pipeline.tail_seconds)
    )


def hint_starts(pipeline: PipelineProblem, order: Order, starts: list[list[float]]) -> list[float]:
    """Starts of a known order, by interval."""
    values = [0.0] * (3 * pipeline.stages * pipeline.micro_batches)
    for s, (word, starts_of_stage) in enumerate(zip(order, starts, strict=True)):
        done = dict.fromkeys(LETTERS, 0)
        for letter, start in zip(word, starts_of_stage, strict=True):
            values[interval_index(pipeline, letter, s, done[letter])] = start
            done[letter] += 1
    return values


def order_from_starts(pipeline: PipelineProblem, solution: IntervalSchedule) -> Order | None:
    """Each stage's slots sorted by start; of two at once, where one takes no time, in the order F, I, W."""
    if solution.starts is None:
        return None
    p, m = pipeline.stages, pipeline.micro_batches
    words = []
    for s in range(p):
        slots = [
            (solution.starts[interval_index(pipeline, each, s, k)], LETTERS.index(each), each)
            for each in LETTERS
            for k in range(m)
        ]
        words.append("".join(letter for _, _, letter in sorted(slots)))
    return tuple(words)
