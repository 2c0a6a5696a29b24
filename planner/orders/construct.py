"""Orders made by rules, the best of many; more memory never makes it worse.

Rules differ in how many micro-batches stages let in, from as many as 1F1B (p − s on stage s) to more than twice that as
in ZB-H2 (arXiv 2401.10241), in whether a ready F or a ready I goes first, and in how long a W may make others wait.

More room may lead a rule into a worse order. So every rule is tried with the room of each smaller whole number of
micro-batches as well, largest first: what fits there fits here. Very long pipelines stop on the way (MOST).
"""

from collections.abc import Iterable, Iterator
from itertools import product
from math import inf
from typing import NamedTuple

from planner.orders.greedy import Rule, greedy
from planner.orders.problem import CLOSE, Objective, Order, Pipeline
from planner.orders.timing import seconds_of

SHAPES = [*product((1.0, 1.25, 1.5, 1.75, 2.0), (0, 1, 2)), (inf, 0)]  # a·(p − s) + b micro-batches on stage s
PATIENCE = (0.0, 0.25, 0.5, 1.0)
MOST = 1_500_000  # slots put, after which no more room is tried
KEPT = 2  # shapes that are tried with everything else


class Made(NamedTuple):
    """An order and what it is worth; `tried`: how many were made and timed until then."""

    seconds: float
    order: Order
    tried: int = 0
    rule: Rule | None = None  # None: it was known
    within: Pipeline | None = None  # with whose room the rule made it


def construct(pipeline: Pipeline, objective: Objective, floor: float, known: Iterable[Order] = ()) -> Made:
    """The best of the rules and of those that are known and fit. Stops where it cannot get better."""
    best, tried, slots = Made(inf, ()), 0, 3 * pipeline.stages * pipeline.micro_batches
    for order in known:
        best, tried = better(best, Made(seconds_of(pipeline, order, objective), order)), tried + 1
    for level in levels(pipeline):
        if best.seconds <= floor * (1 + CLOSE) or tried * slots > MOST:
            break
        made = by_rules(level, objective, floor)
        best, tried = better(best, made), tried + made.tried
    return best._replace(tried=tried)


def better(one: Made, other: Made) -> Made:
    return other if other.seconds < one.seconds else one


def levels(pipeline: Pipeline) -> Iterator[Pipeline]:
    """The pipeline, then with less and less room: every whole number of micro-batches up to 2p, and doublings of it."""
    yield pipeline
    room, twice = min(pipeline.room, pipeline.micro_batches), 2 * pipeline.stages
    sizes = [*range(1, min(room, twice) + 1)]
    while sizes[-1] * 2 <= room and sizes[-1] >= twice:
        sizes.append(sizes[-1] * 2)
    yield from (pipeline.capped(size) for size in reversed(sizes))


def by_rules(pipeline: Pipeline, objective: Objective, floor: float) -> Made:
    """First what stages let in, then the rest for the few best."""
    best, tried, shapes = Made(inf, ()), 0, list[tuple[float, int]]()
    for place, shape in enumerate(SHAPES):
        for patience in (0.0, 0.5):
            found = made(pipeline, objective, rule(pipeline, shape, patience, patience, False))
            best, tried = better(best, found), tried + 1
            shapes.append((found.seconds, place))
            if best.seconds <= floor * (1 + CLOSE):
                return best._replace(tried=tried)
    for place in [*dict.fromkeys(place for _, place in sorted(shapes))][:KEPT]:
        for patience, at_end, eager in product(PATIENCE, (True, False), (False, True)):
            closing = patience if at_end else 0.0
            found = made(pipeline, objective, rule(pipeline, SHAPES[place], patience, closing, eager))
            best, tried = better(best, found), tried + 1
            if best.seconds <= floor * (1 + CLOSE):
                return best._replace(tried=tried)
    return best._replace(tried=tried)


def made(pipeline: Pipeline, objective: Objective, chosen: Rule) -> Made:
    order = greedy(pipeline, chosen)
    seconds = seconds_of(pipeline, order, objective) if order else inf
    return Made(seconds, order or (), 0, chosen, pipeline)


def rule(pipeline: Pipeline, shape: tuple[float, int], patience: float, closing: float, eager: bool) -> Rule:
    p, (share, more) = pipeline.stages, shape
    return Rule(
        most=tuple(int(min(share * (p - s) + more, pipeline.micro_batches)) for s in range(p)),
        eager=tuple(p - s if eager else 0 for s in range(p)),
        patience=(patience,) * p,
        closing=(closing,) * p,
    )
