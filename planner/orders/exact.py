"""The order as a scheduling problem for CP-SAT: it proves small pipelines optimal and improves others.

Stages are machines; F, I and W of each micro-batch are intervals. From the start of F to the end of I a micro-batch
holds the activations that I releases, and to the end of W the rest. Micro-batches keep their sequence, so where they
are unlike, the result is proven for that sequence only and is no bound of a plan (any_sequence_bound.py).
"""

from dataclasses import dataclass

from planner.orders.bound import floor_of
from planner.orders.problem import Objective, Order, Pipeline
from planner.orders.timing import times
from planner.solve.answer import Limits
from planner.solve.intervals import Intervals, Laid, Stay, Stretch, Wait, lay_out

LETTERS = "FIW"


@dataclass(frozen=True, slots=True)
class ExactOrder:
    """The order found, if any, and a lower bound over orders in this sequence."""

    order: Order | None
    bound: float  # seconds
    proven: bool  # whether this order is optimal up to the rounding of the time grid


def solve_exactly(pipeline: Pipeline, objective: Objective, limits: Limits, known: Order | None = None) -> ExactOrder:
    """Solve with CP-SAT, with a known order as the hint."""
    known_times = times(pipeline, known) if known else None
    hint = hint_starts(pipeline, known, known_times.starts) if known and known_times else None
    solution = lay_out(interval_problem(pipeline, objective), limits, hint)
    return ExactOrder(order_of(pipeline, solution), solution.bound, solution.proven)


def piece(pipeline: Pipeline, letter: str, s: int, k: int) -> int:
    """Index of the interval of a pass of micro-batch k on stage s."""
    return (LETTERS.index(letter) * pipeline.stages + s) * pipeline.micro_batches + k


def interval_problem(pipeline: Pipeline, objective: Objective) -> Intervals:
    """The pipeline as intervals, precedences and reservations of memory."""
    p, m = pipeline.stages, pipeline.micro_batches
    tables = pipeline.forward, pipeline.inputs, pipeline.weights
    reservations = []
    for s in range(p):
        for k in range(m):
            kept, held = pipeline.kept[s][k], pipeline.held[s][k]
            first = piece(pipeline, "F", s, k)
            reservations += [Stay(first, piece(pipeline, "I", s, k), s, held - kept)] if held > kept else []
            reservations += [Stay(first, piece(pipeline, "W", s, k), s, kept)] if kept else []
    return Intervals(
        seconds=tuple(table[s][k] for table in tables for s in range(p) for k in range(m)),
        machines=tuple(tuple(piece(pipeline, each, s, k) for each in LETTERS for k in range(m)) for s in range(p)),
        waits=tuple(waits(pipeline)),
        stays=tuple(reservations),
        rooms=pipeline.cap,
        stretches=tuple(
            Stretch(None, piece(pipeline, "W", s, m - 1), pipeline.after[s])
            if objective == "step"
            else Stretch(piece(pipeline, "F", s, 0), piece(pipeline, "W", s, m - 1))
            for s in range(p)
        ),
        horizon=horizon(pipeline),
        least=floor_of(pipeline, objective).seconds,
    )


def waits(pipeline: Pipeline) -> list[Wait]:
    """Precedences of each micro-batch through the stages and back, and of successive micro-batches on each stage."""
    p, m = pipeline.stages, pipeline.micro_batches
    found = []
    for k in range(m):
        for s in range(p):
            forward, inputs, weights = (piece(pipeline, each, s, k) for each in LETTERS)
            found += [Wait(forward, inputs), Wait(inputs, weights)]
            if s + 1 < p:
                found.append(Wait(forward, piece(pipeline, "F", s + 1, k), pipeline.ahead[s][k]))
                found.append(Wait(piece(pipeline, "I", s + 1, k), inputs, pipeline.back[s][k]))
            if k + 1 < m:
                found += [Wait(each, each + 1) for each in (forward, inputs, weights)]
    return found


def horizon(pipeline: Pipeline) -> float:
    """Seconds of one slot at a time: no order needs more."""
    return sum(pipeline.work) + sum(map(sum, pipeline.ahead)) + sum(map(sum, pipeline.back)) + max(pipeline.after)


def hint_starts(pipeline: Pipeline, order: Order, starts: list[list[float]]) -> list[float]:
    """Starts of a known order, by interval."""
    values = [0.0] * (3 * pipeline.stages * pipeline.micro_batches)
    for s, (word, starts_of_stage) in enumerate(zip(order, starts, strict=True)):
        done = dict.fromkeys(LETTERS, 0)
        for letter, start in zip(word, starts_of_stage, strict=True):
            values[piece(pipeline, letter, s, done[letter])] = start
            done[letter] += 1
    return values


def order_of(pipeline: Pipeline, solution: Laid) -> Order | None:
    """Each stage's slots sorted by start; of two at once, where one takes no time, in the order F, I, W."""
    if solution.starts is None:
        return None
    p, m = pipeline.stages, pipeline.micro_batches
    words = []
    for s in range(p):
        slots = [
            (solution.starts[piece(pipeline, each, s, k)], LETTERS.index(each), each)
            for each in LETTERS
            for k in range(m)
        ]
        words.append("".join(letter for _, _, letter in sorted(slots)))
    return tuple(words)
