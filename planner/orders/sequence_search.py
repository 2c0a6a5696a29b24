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

from planner.orders.any_sequence_bound import bound_any_sequence, micro_batches_alike
from planner.orders.construct import make_rule, order_by_rule
from planner.orders.order_search import OrderResult, search_order
from planner.orders.pipeline_problem import OPTIMAL_WITHIN, Order, OrderObjective, PipelineProblem
from planner.orders.slot_timing import fits_memory, objective_seconds

MicroBatchSequence = tuple[int, ...]  # permutation of micro-batches: which one is the k-th
QUICK_SHAPES = ((1.0, 0), (1.5, 0), (2.0, 0), (inf, 0))  # warm-up shapes of rules (construct.py)
PATIENCE = 0.5
# Slots spent on evaluating sequences, by effort
SLOTS_BY_EFFORT = {1: 200_000, 2: 1_000_000, 3: 4_000_000, 4: 20_000_000}
SLOTS_PER_RULE = 4  # constructing an order takes as long as timing so many
SEQUENCES_SEARCHED = 2  # sequences whose order is searched, beside the given one
MOVE_SHARE = 0.3  # share of changes that move one micro-batch; the others swap two


class SequencedOrder(NamedTuple):
    """An order in its sequence, and the number of sequences evaluated."""

    sequence: MicroBatchSequence
    result: OrderResult
    sequences_tried: int

    @property
    def effort(self) -> str:
        return (f"{self.sequences_tried} sequences, " if self.sequences_tried > 1 else "") + self.result.effort


def search_sequences(
    pipeline: PipelineProblem,
    objective: OrderObjective = "step",
    effort: int = 2,
    known: Iterable[Order] = (),
    seed: int = 0,
) -> SequencedOrder:
    """The best sequence and order, no worse than `search_order` in the given sequence. Raises Infeasible when a stage
    cannot hold a micro-batch.
    """
    given, orders = tuple(range(pipeline.micro_batches)), tuple(known)
    best = SequencedOrder(given, search_order(pipeline, objective, effort, orders, seed), 1)
    lower_bound = bound_any_sequence(pipeline, objective).seconds
    if micro_batches_alike(pipeline) or best.result.seconds <= lower_bound * (1 + OPTIMAL_WITHIN):
        return best
    values = evaluate_sequences(
        pipeline, objective, SLOTS_BY_EFFORT[effort], (*orders, best.result.order), lower_bound, seed
    )
    values.pop(given, None)
    tried, work = best.result.orders_tried, best.result.slots_allowed
    for sequence in sorted(values, key=lambda each: (values[each], each))[:SEQUENCES_SEARCHED]:
        known_orders = (*orders, best.result.order)
        found = search_order(pipeline.permuted(sequence), objective, effort, known_orders, seed)
        tried, work = tried + found.orders_tried, work + found.slots_allowed
        if found.seconds < best.result.seconds:
            best = SequencedOrder(sequence, found, 1)
        if best.result.seconds <= lower_bound * (1 + OPTIMAL_WITHIN):
            break
    return SequencedOrder(best.sequence, replace(best.result, orders_tried=tried, slots_allowed=work), len(values) + 1)


def evaluate_sequences(
    pipeline: PipelineProblem,
    objective: OrderObjective,
    work: int,
    known: Iterable[Order],
    lower_bound: float,
    seed: int,
) -> dict[MicroBatchSequence, float]:
    """Seconds of the best quick order in each sequence: the initial ones, then changes of the best so far."""
    orders, random, m = tuple(known), Random(seed).random, pipeline.micro_batches
    quick = (len(orders) + len(QUICK_SHAPES) * (SLOTS_PER_RULE + 1)) * 3 * pipeline.stages * m
    seconds_of = {
        sequence: quick_seconds(pipeline.permuted(sequence), objective, orders)
        for sequence in initial_sequences(pipeline)
    }
    best = min(seconds_of, key=lambda each: (seconds_of[each], each))
    for _ in range(work // quick):
        if seconds_of[best] <= lower_bound * (1 + OPTIMAL_WITHIN):
            break
        tried = changed_sequence(best, int(random() * m), int(random() * m), random() < MOVE_SHARE)
        if tried not in seconds_of:
            seconds_of[tried] = quick_seconds(pipeline.permuted(tried), objective, orders)
        if seconds_of[tried] <= seconds_of[best]:
            best = tried
    return seconds_of


def quick_seconds(pipeline: PipelineProblem, objective: OrderObjective, known: Iterable[Order]) -> float:
    """Seconds of the best of a few quick orders."""
    rules = [
        order_by_rule(pipeline, objective, make_rule(pipeline, shape, PATIENCE, PATIENCE, False)).seconds
        for shape in QUICK_SHAPES
    ]
    return min(
        *rules, *(objective_seconds(pipeline, order, objective) for order in known if fits_memory(pipeline, order))
    )


def changed_sequence(sequence: MicroBatchSequence, one: int, other: int, move: bool) -> MicroBatchSequence:
    """The sequence with two micro-batches swapped, or one moved."""
    result = list(sequence)
    if move:
        result.insert(other, result.pop(one))
    else:
        result[one], result[other] = result[other], result[one]
    return tuple(result)


def initial_sequences(pipeline: PipelineProblem) -> Iterator[MicroBatchSequence]:
    """Initial sequences: as given; by rising and falling work; short ones at both ends, or long ones."""
    tables = pipeline.forward, pipeline.input_grads, pipeline.weight_grads
    given = range(pipeline.micro_batches)
    cost = [sum(of_stage[k] for table in tables for of_stage in table) for k in given]
    rising = sorted(given, key=lambda k: (cost[k], k))
    yield tuple(given)
    yield tuple(rising)
    yield tuple(reversed(rising))
    for each in (rising, rising[::-1]):
        yield (*each[::2], *each[1::2][::-1])
