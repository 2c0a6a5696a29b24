"""Packings on one pool of ranks at a time, so that no plan for several kinds of ranks is worse than one that leaves
the other kinds idle.

Idle ranks still synchronise in every micro-batch and keep their share of the states, so the same groups take the same
time. A pool is skipped when its work in perfect balance already takes longer than the known packing.
"""

from dataclasses import replace

from planner.costs.step.sequences import Sequences
from planner.costs.step.table import make_table
from planner.packing.balanced import best_balanced, one_by_one
from planner.packing.packed import Packed, PackedGroup, ordered, worth
from planner.packing.search import search


def best_of_each_pool(problem: Sequences, packed: Packed, effort: int) -> tuple[Packed, int]:
    """`packed`, or a better packing with groups on one pool only; and the number of fills spent."""
    best, best_seconds, fills = packed, worth(problem, packed), 0
    for number in range(len(problem.pools) if len(problem.pools) > 1 else 0):
        restricted = only_pool(problem, number)
        if not all(map(restricted.choices, restricted.sizes)) or promised(restricted) >= best_seconds:
            continue
        found, spent = search(restricted, best_balanced(restricted) or one_by_one(restricted), effort)
        fills += spent
        if worth(restricted, found) < best_seconds:
            best, best_seconds = renumber_shapes(problem, found, number), worth(restricted, found)
    return best, fills


def promised(problem: Sequences) -> float:
    """Lower bound on the seconds of a step: the fewest micro-batches, all of them full and in perfect balance."""
    work = make_table(problem).work / problem.ranks
    return work + problem.fewest_rows * problem.row_constant + problem.step_seconds


def only_pool(problem: Sequences, number: int) -> Sequences:
    """The same sequences restricted to one pool."""
    shapes = tuple(replace(shape, pool=0) for shape in problem.shapes if shape.pool == number)
    return replace(problem, pools=(problem.pools[number],), shapes=shapes)


def renumber_shapes(problem: Sequences, packed: Packed, number: int) -> Packed:
    """A packing of one pool, with its shapes numbered as in the problem of all pools."""
    shapes = [at for at, shape in enumerate(problem.shapes) if shape.pool == number]
    micro_batches = (
        tuple(PackedGroup(shapes[g.shape], g.items, g.first) for g in micro_batch) for micro_batch in packed
    )
    return ordered(tuple(micro_batches), problem)
