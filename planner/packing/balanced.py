"""The best plan with one shape for everything: balanced, not packed. Always a candidate, and the warm start.

For every shape and number of micro-batches M, sequences go longest first to the least loaded of M·G groups that can
hold them (LPT, Graham 1969), G being how many such groups the ranks make; groups are then sorted by time, so that
micro-batches hold groups of like duration. The best of these is leveled by exchanges over all its groups.
"""

import heapq
from collections.abc import Iterator

import numpy as np

from planner.costs.step.sequences import Sequences
from planner.costs.step.table import Table, make_table
from planner.packing.packed import Packed, PackedGroup, ordered, worth
from planner.packing.places import make_nodes, place
from planner.packing.polish import polished

EXTRA_MICRO_BATCHES = 8  # tried beyond the fewest that hold the tokens
EXCHANGES = 8  # for each group, on average


def best_balanced(problem: Sequences) -> Packed | None:
    """The best homogeneous packing over shapes and numbers of micro-batches; None when no shape holds every item.

    The most promising first, by the time they would take in perfect balance: what cannot become the best is left out.
    """
    table = make_table(problem)
    best, value = None, float("inf")
    for promised, shape, rows in sorted(entry for s in range(len(problem.shapes)) for entry in promises(table, s)):
        if promised >= value:
            break
        packed = balanced(table, shape, rows)
        if packed and worth(problem, packed) < value:
            best, value = packed, worth(problem, packed)
    return min(best, leveled(table, best), key=lambda packed: worth(problem, packed)) if best else None


def leveled(table: Table, packed: Packed) -> Packed:
    """Exchanges over all groups, as if they ran together; then groups of like duration together again."""
    groups = tuple(group for row in packed for group in row)
    (row,) = polished(table, (groups,), EXCHANGES * len(groups))
    return arrange(table, row[0].shape, [(table.problem.seconds(g.shape, g.items), g.items) for g in row])


def best_of_shape(problem: Sequences, shape: int) -> Packed | None:
    """The best number of micro-batches for one shape."""
    table = make_table(problem)
    found = [packed for _, _, rows in promises(table, shape) if (packed := balanced(table, shape, rows))]
    return min(found, key=lambda packed: worth(problem, packed), default=None)


def one_by_one(problem: Sequences) -> Packed:
    """Every item in a micro-batch of its own, on its fastest shape: the warm start where no one shape holds all."""
    rows = []
    for item in problem.sizes:
        fastest = min(problem.choices(item), key=lambda shape: problem.seconds(shape, (item,)))
        rows.append((PackedGroup(fastest, (item,), starts(problem, fastest)[0]),))
    return ordered(tuple(rows), problem)


def promises(table: Table, shape: int) -> Iterator[tuple[float, int, int]]:
    """Numbers of micro-batches worth trying, with the seconds of a step if balance were perfect."""
    problem, chosen = table.problem, table.problem.shapes[shape]
    groups = len(starts(problem, shape))
    if not groups or not np.isfinite(table.seconds[:, shape]).all():
        return
    work = float(table.seconds[:, shape].sum()) / groups
    constant = chosen.line.const + problem.row_seconds
    fewest, one_each = max(1, -(-problem.tokens // (groups * chosen.room))), -(-len(problem.sizes) // groups)
    for rows in {*range(fewest, min(fewest + EXTRA_MICRO_BATCHES, max(fewest, one_each)) + 1), one_each}:
        yield work + rows * constant + problem.step_seconds, shape, rows  # one item to a group always fits


def starts(problem: Sequences, shape: int) -> list[int]:
    """The first ranks of as many groups of one shape as there is room for."""
    nodes, found = make_nodes(problem), []
    free = nodes.size.tolist()
    while (first := place(nodes, shape, problem.shapes[shape].degree, free)) is not None:
        found.append(first)
    return found


def balanced(table: Table, shape: int, rows: int) -> Packed | None:
    """LPT over `rows` micro-batches; None when an item fits nowhere."""
    room = table.problem.shapes[shape].room
    loads = [(0.0, number) for number in range(len(starts(table.problem, shape)) * rows)]  # a heap of (seconds, group)
    tokens = [0] * len(loads)
    held: list[list[int]] = [[] for _ in loads]
    columns = table.items.tolist(), table.sizes.tolist(), table.seconds[:, shape].tolist()
    for item, size, takes in zip(*columns, strict=True):
        passed = []
        while loads and tokens[loads[0][1]] + size > room:
            passed.append(heapq.heappop(loads))
        if not loads:
            return None
        seconds, number = loads[0]
        heapq.heapreplace(loads, (seconds + takes, number))
        tokens[number] += size
        held[number].append(item)
        for entry in passed:
            heapq.heappush(loads, entry)
    return arrange(table, shape, [(seconds, tuple(held[number])) for seconds, number in loads])


def arrange(table: Table, shape: int, groups: list[tuple[float, tuple[int, ...]]]) -> Packed:
    """Groups of one shape, with their seconds, in micro-batches of like duration."""
    firsts = starts(table.problem, shape)
    slowest_first = sorted(groups, key=lambda group: (-group[0], group[1]))
    packed = tuple(
        tuple(
            PackedGroup(shape, items, first)
            for (_, items), first in zip(slowest_first[start : start + len(firsts)], firsts, strict=False)
        )
        for start in range(0, len(slowest_first), len(firsts))
    )
    return ordered(packed, table.problem)
