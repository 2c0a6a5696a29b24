"""The sequence of the micro-batches, and the order in it: where they are unlike, which one goes first is free speed.

A few sequences are made by what micro-batches take, and the best of them, by what a few quick rules make of it, is
improved by swaps of two and by moves of one. The order of the best few is then searched, and that of the sequence
given always. Work is counted in slots, as in search.py.
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

Sequence = tuple[int, ...]  # of micro-batches: which one is the k-th
QUICK = ((1.0, 0), (1.5, 0), (2.0, 0), (inf, 0))  # shapes of rules (construct.py)
PATIENCE = 0.5
WORK = {1: 200_000, 2: 1_000_000, 3: 4_000_000, 4: 20_000_000}  # slots put or timed in valuing sequences, by effort
LOOKS = 4  # making an order takes as long as timing so many
SEARCHED = 2  # sequences whose order is searched, beside the one given
MOVES = 0.3  # of the changes: one micro-batch to another place; the others change places


class Sequenced(NamedTuple):
    """An order in its sequence, and how many sequences were valued."""

    sequence: Sequence
    found: Found
    valued: int

    @property
    def effort(self) -> str:
        return (f"{self.valued} sequences, " if self.valued > 1 else "") + self.found.effort


def search_sequences(
    pipeline: Pipeline, objective: Objective = "step", effort: int = 2, known: Iterable[Order] = (), seed: int = 0
) -> Sequenced:
    """No worse than `search` in the sequence given. Raises Infeasible when a stage cannot hold a micro-batch."""
    given, orders = tuple(range(pipeline.micro_batches)), tuple(known)
    best = Sequenced(given, search(pipeline, objective, effort, orders, seed), 1)
    floor = floor_of_any(pipeline, objective).seconds
    if alike(pipeline) or best.found.seconds <= floor * (1 + CLOSE):
        return best
    values = valued(pipeline, objective, WORK[effort], (*orders, best.found.order), floor, seed)
    values.pop(given, None)
    tried, work = best.found.tried, best.found.work
    for sequence in sorted(values, key=lambda each: (values[each], each))[:SEARCHED]:
        again = (*orders, best.found.order)
        found = search(pipeline.permuted(sequence), objective, effort, again, seed)
        tried, work = tried + found.tried, work + found.work
        if found.seconds < best.found.seconds:
            best = Sequenced(sequence, found, 1)
        if best.found.seconds <= floor * (1 + CLOSE):
            break
    return Sequenced(best.sequence, replace(best.found, tried=tried, work=work), len(values) + 1)


def valued(
    pipeline: Pipeline, objective: Objective, work: int, known: Iterable[Order], floor: float, seed: int
) -> dict[Sequence, float]:
    """Sequences that are made, then those changed from the best so far; and what quick orders in them take."""
    orders, chance, m = tuple(known), Random(seed).random, pipeline.micro_batches
    quick = (len(orders) + len(QUICK) * (LOOKS + 1)) * 3 * pipeline.stages * m
    found = {sequence: value(pipeline.permuted(sequence), objective, orders) for sequence in sequences(pipeline)}
    best = min(found, key=lambda each: (found[each], each))
    for _ in range(work // quick):
        if found[best] <= floor * (1 + CLOSE):
            break
        tried = changed(best, int(chance() * m), int(chance() * m), chance() < MOVES)
        if tried not in found:
            found[tried] = value(pipeline.permuted(tried), objective, orders)
        if found[tried] <= found[best]:
            best = tried
    return found


def value(pipeline: Pipeline, objective: Objective, known: Iterable[Order]) -> float:
    """Seconds of the best of a few orders."""
    rules = [made(pipeline, objective, rule(pipeline, shape, PATIENCE, PATIENCE, False)).seconds for shape in QUICK]
    return min(*rules, *(seconds_of(pipeline, order, objective) for order in known if fits(pipeline, order)))


def changed(sequence: Sequence, one: int, other: int, move: bool) -> Sequence:
    """Two micro-batches in each other's place, or one moved there."""
    turned = list(sequence)
    if move:
        turned.insert(other, turned.pop(one))
    else:
        turned[one], turned[other] = turned[other], turned[one]
    return tuple(turned)


def sequences(pipeline: Pipeline) -> Iterator[Sequence]:
    """As it is; by rising and by falling work; and the short ones at both ends, or the long ones."""
    tables = pipeline.forward, pipeline.inputs, pipeline.weights
    given = range(pipeline.micro_batches)
    cost = [sum(row[k] for rows in tables for row in rows) for k in given]
    rising = sorted(given, key=lambda k: (cost[k], k))
    yield tuple(given)
    yield tuple(rising)
    yield tuple(reversed(rising))
    for each in (rising, rising[::-1]):
        yield (*each[::2], *each[1::2][::-1])
