"""Each pool of ranks by itself: no plan for several kinds of ranks is worse than the best one that leaves others idle.

Idle ranks still meet the others in every micro-batch and keep their share of the states, so that the same groups take
the same time. A pool is left out where its work in perfect balance takes longer than what is known.
"""

from dataclasses import replace

from planner.costs.step.sequences import Sequences
from planner.costs.step.table import make_table
from planner.packing.balanced import best_balanced, one_by_one
from planner.packing.packed import Packed, PackedGroup, ordered, worth
from planner.packing.search import search


def best_of_each_pool(problem: Sequences, packed: Packed, effort: int) -> tuple[Packed, int]:
    """`packed`, or a better packing that has groups on one pool only; and the fills that it took to look."""
    best, value, fills = packed, worth(problem, packed), 0
    for number in range(len(problem.pools) if len(problem.pools) > 1 else 0):
        alone = only_pool(problem, number)
        if not all(map(alone.choices, alone.sizes)) or promised(alone) >= value:
            continue
        found, spent = search(alone, best_balanced(alone) or one_by_one(alone), effort)
        fills += spent
        if worth(alone, found) < value:
            best, value = among_all(problem, found, number), worth(alone, found)
    return best, fills


def promised(problem: Sequences) -> float:
    """Seconds of a step with the fewest micro-batches, all of them full and in perfect balance."""
    work = make_table(problem).work / problem.ranks
    return work + problem.fewest_rows * problem.row_constant + problem.step_seconds


def only_pool(problem: Sequences, number: int) -> Sequences:
    """The same sequences on one of the pools."""
    shapes = tuple(replace(shape, pool=0) for shape in problem.shapes if shape.pool == number)
    return replace(problem, pools=(problem.pools[number],), shapes=shapes)


def among_all(problem: Sequences, packed: Packed, number: int) -> Packed:
    """A packing of one pool, with its shapes numbered as those of all pools."""
    shapes = [at for at, shape in enumerate(problem.shapes) if shape.pool == number]
    rows = (tuple(PackedGroup(shapes[g.shape], g.items, g.first) for g in row) for row in packed)
    return ordered(tuple(rows), problem)
