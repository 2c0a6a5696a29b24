"""The best packing with one shape for every group: balanced instead of packed. A candidate and the warm start.

For every shape and number of micro-batches M, sequences are assigned longest first to the least loaded of M·G groups
that can hold them (LPT, Graham 1969), G being the number of such groups that the ranks form. Groups are then sorted by
time, so that each micro-batch holds groups of similar duration. The best of these packings is improved by exchanging
items between all its groups.
"""

import heapq
from collections.abc import Iterator

import numpy as np

from planner.costs import PackingProblem, PackingTable, packing_table
from planner.packing.leveling import level_micro_batches
from planner.packing.packed_groups import PackedGroup, Packing, canonical_order, packing_seconds
from planner.packing.rank_placement import FreeNodes, make_nodes

EXTRA_MICRO_BATCHES = 8  # tried beyond the smallest number that holds the tokens
EXCHANGES_PER_GROUP = 8  # per group, on average


def best_balanced(problem: PackingProblem) -> Packing | None:
    """The best homogeneous packing over shapes and numbers of micro-batches; None when no shape holds every item.

    Candidates are tried in the order of their time in perfect balance, and skipped once that is above the incumbent.
    """
    table = packing_table(problem)
    best, best_seconds = None, float("inf")
    candidates = sorted(entry for s in range(len(problem.shapes)) for entry in step_lower_bounds(table, s))
    for lower_bound, shape, micro_batches in candidates:
        if lower_bound >= best_seconds:
            break
        packed = pack_longest_first(table, shape, micro_batches)
        if packed and packing_seconds(problem, packed) < best_seconds:
            best, best_seconds = packed, packing_seconds(problem, packed)
    return (
        min(best, level_all_groups(table, best), key=lambda packed: packing_seconds(problem, packed)) if best else None
    )


def level_all_groups(table: PackingTable, packed: Packing) -> Packing:
    """Exchange items between all groups as if they were one micro-batch, then regroup them by duration."""
    groups = tuple(group for micro_batch in packed for group in micro_batch)
    (micro_batch,) = level_micro_batches(table, (groups,), EXCHANGES_PER_GROUP * len(groups))
    return group_by_duration(
        table, micro_batch[0].shape, [(table.problem.seconds(g.shape, g.items), g.items) for g in micro_batch]
    )


def one_item_per_micro_batch(problem: PackingProblem) -> Packing:
    """Every item in a micro-batch of its own, on its fastest shape: the warm start where no single shape holds all."""
    micro_batches = []
    for item in problem.sizes:
        fastest = min(problem.choices(item), key=lambda shape: problem.seconds(shape, (item,)))
        micro_batches.append((PackedGroup(fastest, (item,), group_starts(problem, fastest)[0]),))
    return canonical_order(tuple(micro_batches), problem)


def step_lower_bounds(table: PackingTable, shape: int) -> Iterator[tuple[float, int, int]]:
    """Numbers of micro-batches to try: (seconds of a step in perfect balance, shape, micro-batches)."""
    problem, chosen = table.problem, table.problem.shapes[shape]
    groups = len(group_starts(problem, shape))
    if not groups or not np.isfinite(table.seconds[:, shape]).all():
        return
    work = float(table.seconds[:, shape].sum()) / groups
    constant = chosen.line.const + problem.micro_batch_seconds
    least, one_each = max(1, -(-problem.tokens // (groups * chosen.room))), -(-len(problem.sizes) // groups)
    for micro_batches in {*range(least, min(least + EXTRA_MICRO_BATCHES, max(least, one_each)) + 1), one_each}:
        # With one item per group every item fits.
        yield work + micro_batches * constant + problem.step_seconds, shape, micro_batches


def group_starts(problem: PackingProblem, shape: int) -> list[int]:
    """The first rank of each group, for as many groups of one shape as the nodes have room for."""
    free, firsts = FreeNodes(make_nodes(problem)), []
    while (first := free.place_group(shape, problem.shapes[shape].degree)) is not None:
        firsts.append(first)
    return firsts


def pack_longest_first(table: PackingTable, shape: int, micro_batches: int) -> Packing | None:
    """Longest-first assignment (LPT) over `micro_batches` micro-batches; None when an item fits into no group."""
    room = table.problem.shapes[shape].room
    groups = len(group_starts(table.problem, shape)) * micro_batches
    loads = [(0.0, number) for number in range(groups)]  # a heap of (seconds, group)
    tokens = [0] * len(loads)
    items_of: list[list[int]] = [[] for _ in loads]
    columns = table.items.tolist(), table.sizes.tolist(), table.seconds[:, shape].tolist()
    for item, size, item_seconds in zip(*columns, strict=True):
        full = []
        while loads and tokens[loads[0][1]] + size > room:
            full.append(heapq.heappop(loads))
        if not loads:
            return None
        seconds, number = loads[0]
        heapq.heapreplace(loads, (seconds + item_seconds, number))
        tokens[number] += size
        items_of[number].append(item)
        for entry in full:
            heapq.heappush(loads, entry)
    return group_by_duration(table, shape, [(seconds, tuple(items_of[number])) for seconds, number in loads])


def group_by_duration(table: PackingTable, shape: int, groups: list[tuple[float, tuple[int, ...]]]) -> Packing:
    """Groups of one shape, given as (seconds, items), collected into micro-batches of similar duration."""
    firsts = group_starts(table.problem, shape)
    slowest_first = sorted(groups, key=lambda group: (-group[0], group[1]))
    packed = tuple(
        tuple(
            PackedGroup(shape, items, first)
            for (_, items), first in zip(slowest_first[start : start + len(firsts)], firsts, strict=False)
        )
        for start in range(0, len(slowest_first), len(firsts))
    )
    return canonical_order(packed, table.problem)
