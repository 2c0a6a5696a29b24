"""Packings on one pool of ranks at a time, so that no plan for several kinds of ranks is worse than one that leaves
the other kinds idle.

Idle ranks still synchronise in every micro-batch and keep their share of the states, so the same groups take the same
time. A pool is skipped when its work in perfect balance already takes longer than the known packing.
"""

from dataclasses import replace

from planner.costs import PackingProblem, packing_table
from planner.packing.balanced import best_balanced, one_item_per_micro_batch
from planner.packing.makespan_search import search_makespans
from planner.packing.packed_groups import PackedGroup, Packing, canonical_order, packing_seconds


def best_of_each_pool(problem: PackingProblem, packed: Packing, effort: int) -> tuple[Packing, int]:
    """`packed`, or a better packing with groups on one pool only; and the number of fills spent."""
    best, best_seconds, fills = packed, packing_seconds(problem, packed), 0
    for number in range(len(problem.pools) if len(problem.pools) > 1 else 0):
        restricted = restrict_to_pool(problem, number)
        if not all(map(restricted.choices, restricted.sizes)) or step_lower_bound(restricted) >= best_seconds:
            continue
        found, spent = search_makespans(
            restricted, best_balanced(restricted) or one_item_per_micro_batch(restricted), effort
        )
        fills += spent
        if packing_seconds(restricted, found) < best_seconds:
            best, best_seconds = renumber_shapes(problem, found, number), packing_seconds(restricted, found)
    return best, fills


def step_lower_bound(problem: PackingProblem) -> float:
    """Lower bound on the seconds of a step: the fewest micro-batches, all of them full and in perfect balance."""
    work = packing_table(problem).least_rank_seconds / problem.ranks
    return work + problem.fewest_micro_batches * problem.least_micro_batch_seconds + problem.step_seconds


def restrict_to_pool(problem: PackingProblem, number: int) -> PackingProblem:
    """The same sequences restricted to one pool."""
    shapes = tuple(replace(shape, pool=0) for shape in problem.shapes if shape.pool == number)
    return replace(problem, pools=(problem.pools[number],), shapes=shapes)


def renumber_shapes(problem: PackingProblem, packed: Packing, number: int) -> Packing:
    """A packing of one pool, with its shapes numbered as in the problem of all pools."""
    shapes = [at for at, shape in enumerate(problem.shapes) if shape.pool == number]
    micro_batches = (
        tuple(PackedGroup(shapes[g.shape], g.items, g.first_rank) for g in micro_batch) for micro_batch in packed
    )
    return canonical_order(tuple(micro_batches), problem)
