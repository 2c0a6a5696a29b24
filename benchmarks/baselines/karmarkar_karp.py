"""Largest differencing (Karmarkar and Karp 1982) over groups of one degree, as verl balances sequence lengths.

Every sequence begins as a partial partition of its own, of one part that holds it and others that are empty. The two
partitions whose parts differ most are joined, largest part with smallest, until one is left: its parts are the groups.
The weight of a sequence is its time; the number of micro-batches is the fewest that hold the tokens, raised until no
group exceeds its memory. Groups are then sorted by time. The degree whose step is shortest is taken.
"""

import heapq
from dataclasses import dataclass
from itertools import chain

from benchmarks.baselines.groups import Bin, homogeneous, powers_of_two, slowest_first
from planner.costs.packing_problem import PackingProblem
from planner.packing.balanced import group_starts
from planner.packing.packed_groups import Packing, packing_seconds

RAISES = 8  # of the number of micro-batches


@dataclass(frozen=True, slots=True)
class Part:
    """Items as a chain of joins, told apart only at the end."""

    weight: float
    items: tuple["Part | int", ...]


State = list[Part]  # by falling weight, without the empty parts


def karmarkar_karp(problem: PackingProblem) -> Packing | None:
    """Degrees by their time in perfect balance: those that cannot become the best are left out."""
    best, value = None, float("inf")
    for promised, shape in sorted(promises(problem)):
        if promised >= value:
            break
        packed = of_shape(problem, shape)
        if packed and packing_seconds(problem, packed) < value:
            best, value = packed, packing_seconds(problem, packed)
    return best


def promises(problem: PackingProblem) -> list[tuple[float, int]]:
    """Seconds of a step in perfect balance, for shapes that hold every sequence."""
    found, longest = [], max(problem.sizes.values())
    for shape in powers_of_two(problem):
        groups, chosen = len(group_starts(problem, shape)), problem.shapes[shape]
        if groups and chosen.room >= longest:
            work = sum(chosen.line.item_seconds(size) for size in problem.sizes.values()) / groups
            rows = -(-problem.tokens // (groups * chosen.room))
            found.append(
                (work + rows * (chosen.line.const + problem.micro_batch_seconds) + problem.step_seconds, shape)
            )
    return found


def of_shape(problem: PackingProblem, shape: int) -> Packing | None:
    groups, chosen = len(group_starts(problem, shape)), problem.shapes[shape]
    weights = {item: chosen.line.item_seconds(size) for item, size in problem.sizes.items()}
    fewest = -(-problem.tokens // (groups * chosen.room))
    for rows in range(fewest, fewest + RAISES):
        bins = partition(weights, rows * groups)
        if all(sum(problem.sizes[item] for item in held) <= chosen.room for held in bins):
            return homogeneous(problem, shape, slowest_first(problem, shape, bins))
    return None


def partition(weights: dict[int, float], parts: int) -> list[Bin]:
    """Items in at most so many parts; none is empty."""
    heap: list[tuple[float, int, State]] = [
        (-weight if parts > 1 else 0.0, number, [Part(weight, (item,))])
        for number, (item, weight) in enumerate(sorted(weights.items()))
    ]
    heapq.heapify(heap)
    for number in range(len(heap), 2 * len(heap) - 1):
        joined = join(heapq.heappop(heap)[2], heapq.heappop(heap)[2], parts)
        least = joined[-1].weight if len(joined) == parts else 0.0
        heapq.heappush(heap, (least - joined[0].weight, number, joined))
    return [tuple(sorted(flat(part))) for part in heap[0][2]]


def join(one: State, two: State, parts: int) -> State:
    """The largest part of one with the smallest of the other; parts that meet an empty one stay as they are."""
    both = len(one) + len(two) - parts  # of the pairs, so many have no empty part: the smallest of either
    if both <= 0:
        return sorted(chain(one, two), key=by_weight)
    alone_one, alone_two = one[: len(one) - both], two[: len(two) - both]
    met = [
        Part(a.weight + b.weight, (a, b))
        for a, b in zip(one[len(one) - both :], reversed(two[len(two) - both :]), strict=True)
    ]
    return sorted(chain(alone_one, alone_two, met), key=by_weight)


def by_weight(part: Part) -> float:
    return -part.weight


def flat(part: Part) -> list[int]:
    items, waiting = [], [part]
    while waiting:
        for each in waiting.pop().items:
            if isinstance(each, Part):
                waiting.append(each)
            else:
                items.append(each)
    return items
