"""The order as intervals on machines, for CP-SAT: it proves what is best of small pipelines, and improves others.

Stages are machines; F, I and W of each micro-batch are pieces. From the start of F to the end of I a micro-batch takes
what I gives back, and to the end of W the rest. Micro-batches keep their sequence, so where they are unlike what is
proven is of that sequence only, and no bound of a plan (anyhow.py).
"""

from dataclasses import dataclass

from planner.orders.bound import floor_of
from planner.orders.problem import Objective, Order, Pipeline
from planner.orders.timing import times
from planner.solve.answer import Limits
from planner.solve.intervals import Intervals, Laid, Stay, Stretch, Wait, lay_out

LETTERS = "FIW"


@dataclass(frozen=True, slots=True)
class Exact:
    """The order found, if one was, and what none can beat."""

    order: Order | None
    bound: float
    proven: bool  # that this order is as good as any, but for the grid's rounding


def solve_exactly(pipeline: Pipeline, objective: Objective, limits: Limits, known: Order | None = None) -> Exact:
    """By CP-SAT, from an order that is known."""
    begun = times(pipeline, known) if known else None
    hint = hint_of(pipeline, known, begun.starts) if known and begun else None
    laid = lay_out(intervals(pipeline, objective), limits, hint)
    return Exact(order_of(pipeline, laid), laid.bound, laid.proven)


def piece(pipeline: Pipeline, letter: str, s: int, k: int) -> int:
    return (LETTERS.index(letter) * pipeline.stages + s) * pipeline.micro_batches + k


def intervals(pipeline: Pipeline, objective: Objective) -> Intervals:
    p, m = pipeline.stages, pipeline.micro_batches
    rows = pipeline.forward, pipeline.inputs, pipeline.weights
    stays = []
    for s in range(p):
        for k in range(m):
            kept, held = pipeline.kept[s][k], pipeline.held[s][k]
            first = piece(pipeline, "F", s, k)
            stays += [Stay(first, piece(pipeline, "I", s, k), s, held - kept)] if held > kept else []
            stays += [Stay(first, piece(pipeline, "W", s, k), s, kept)] if kept else []
    return Intervals(
        seconds=tuple(row[s][k] for row in rows for s in range(p) for k in range(m)),
        machines=tuple(tuple(piece(pipeline, each, s, k) for each in LETTERS for k in range(m)) for s in range(p)),
        waits=tuple(waits(pipeline)),
        stays=tuple(stays),
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
    """Micro-batch by micro-batch through the stages and back; and on each stage in turn."""
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
    """One micro-batch after the other, one slot at a time."""
    return sum(pipeline.work) + sum(map(sum, pipeline.ahead)) + sum(map(sum, pipeline.back)) + max(pipeline.after)


def hint_of(pipeline: Pipeline, order: Order, starts: list[list[float]]) -> list[float]:
    values = [0.0] * (3 * pipeline.stages * pipeline.micro_batches)
    for s, (word, began) in enumerate(zip(order, starts, strict=True)):
        done = dict.fromkeys(LETTERS, 0)
        for letter, start in zip(word, began, strict=True):
            values[piece(pipeline, letter, s, done[letter])] = start
            done[letter] += 1
    return values


def order_of(pipeline: Pipeline, laid: Laid) -> Order | None:
    """Each stage's slots by their starts; where two begin at once, as one takes no time, by what needs the other."""
    if laid.starts is None:
        return None
    p, m = pipeline.stages, pipeline.micro_batches
    words = []
    for s in range(p):
        slots = [
            (laid.starts[piece(pipeline, each, s, k)], LETTERS.index(each), each) for each in LETTERS for k in range(m)
        ]
        words.append("".join(letter for _, _, letter in sorted(slots)))
    return tuple(words)
