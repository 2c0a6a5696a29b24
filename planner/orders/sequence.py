"""The sequence of micro-batches, and the order in it: where micro-batches differ, their sequence affects the step.

A few sequences are built from the seconds of micro-batches. The best of them, by the seconds that a few quick rules
reach, is improved by swaps of two and by moves of one. The order of the best few is then searched, and always that of
the given sequence. Work is counted in slots, as in order_search.py.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from random import Random
from typing import NamedTuple

from planner.orders.anyhow import alike, floor_of_any
from planner.orders.construct import made, rule
from planner.orders.problem import CLOSE, Objective, Order, Pipeline
from planner.orders.search import Found, search
from planner.orders.timing import fits, seconds_of

Sequence = tuple[int, ...]  # permutation of micro-batches: which one is the k-th
QUICK_SHAPES = ((1.0, 0), (1.5, 0), (2.0, 0), (inf, 0))  # warm-up shapes of rules (construct.py)
PATIENCE = 0.5
WORK = {1: 200_000, 2: 1_000_000, 3: 4_000_000, 4: 20_000_000}  # slots spent on evaluating sequences, by effort
SLOTS_PER_RULE = 4  # constructing an order takes as long as timing so many
SEARCHED = 2  # sequences whose order is searched, beside the given one
MOVE_SHARE = 0.3  # share of changes that move one micro-batch; the others swap two


class Sequenced(NamedTuple):
    """An order in its sequence, and the number of sequences evaluated."""

    sequence: Sequence
    found: Found
    valued: int

    @property
    def effort(self) -> str:
        return (f"{self.valued} sequences, " if self.valued > 1 else "") + self.found.effort


def search_sequences(
    pipeline: Pipeline, objective: Objective = "step", effort: int = 2, known: Iterable[Order] = (), seed: int = 0
) -> Sequenced:
    """The best sequence and order, no worse than `search_order` in the given sequence. Raises Infeasible when a stage
    cannot hold a micro-batch.
    """
    given, orders = tuple(range(pipeline.micro_batches)), tuple(known)
    best = Sequenced(given, search(pipeline, objective, effort, orders, seed), 1)
    lower_bound = floor_of_any(pipeline, objective).seconds
    if alike(pipeline) or best.found.seconds <= lower_bound * (1 + CLOSE):
        return best
    values = valued(pipeline, objective, WORK[effort], (*orders, best.found.order), lower_bound, seed)
    values.pop(given, None)
    tried, work = best.found.tried, best.found.work
    for sequence in sorted(values, key=lambda each: (values[each], each))[:SEARCHED]:
        known_orders = (*orders, best.found.order)
        found = search(pipeline.permuted(sequence), objective, effort, known_orders, seed)
        tried, work = tried + found.tried, work + found.work
        if found.seconds < best.found.seconds:
            best = Sequenced(sequence, found, 1)
        if best.found.seconds <= lower_bound * (1 + CLOSE):
            break
    return Sequenced(best.sequence, replace(best.found, tried=tried, work=work), len(values) + 1)


def valued(
    pipeline: Pipeline, objective: Objective, work: int, known: Iterable[Order], lower_bound: float, seed: int
) -> dict[Sequence, float]:
    """Seconds of the best quick order in each sequence: the initial ones, then changes of the best so far."""
    orders, random, m = tuple(known), Random(seed).random, pipeline.micro_batches
    quick = (len(orders) + len(QUICK_SHAPES) * (SLOTS_PER_RULE + 1)) * 3 * pipeline.stages * m
    found = {sequence: value(pipeline.permuted(sequence), objective, orders) for sequence in sequences(pipeline)}
    best = min(found, key=lambda each: (found[each], each))
    for _ in range(work // quick):
        if found[best] <= lower_bound * (1 + CLOSE):
            break
        tried = changed(best, int(random() * m), int(random() * m), random() < MOVE_SHARE)
        if tried not in found:
            found[tried] = value(pipeline.permuted(tried), objective, orders)
        if found[tried] <= found[best]:
            best = tried
    return found


def value(pipeline: Pipeline, objective: Objective, known: Iterable[Order]) -> float:
    """Seconds of the best of a few quick orders."""
    rules = [
        made(pipeline, objective, rule(pipeline, shape, PATIENCE, PATIENCE, False)).seconds for shape in QUICK_SHAPES
    ]
    return min(*rules, *(seconds_of(pipeline, order, objective) for order in known if fits(pipeline, order)))


def changed(sequence: Sequence, one: int, other: int, move: bool) -> Sequence:
    """The sequence with two micro-batches swapped, or one moved."""
    result = list(sequence)
    if move:
        result.insert(other, result.pop(one))
    else:
        result[one], result[other] = result[other], result[one]
    return tuple(result)


def sequences(pipeline: Pipeline) -> Iterator[Sequence]:
    """Initial sequences: as given; by rising and falling work; short ones at both ends, or long ones."""
    tables = pipeline.forward, pipeline.inputs, pipeline.weights
    given = range(pipeline.micro_batches)
    cost = [sum(of_stage[k] for table in tables for of_stage in table) for k in given]
    rising = sorted(given, key=lambda k: (cost[k], k))
    yield tuple(given)
    yield tuple(rising)
    yield tuple(reversed(rising))
    for each in (rising, rising[::-1]):
        yield (*each[::2], *each[1::2][::-1])
