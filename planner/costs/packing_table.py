"""The packing problem as arrays, longest sequences first, which packing heuristics and bounds run over."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.costs.packing_problem import PackingProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PackingTable:
    """A packing problem as arrays of (items, shapes)."""

    problem: PackingProblem
    items: Ints  # (items,): numbers of the items
    sizes: Ints  # (items,): tokens, in falling order
    seconds: Floats  # (items, shapes): seconds of the item by itself, without the constant; inf: not allowed
    degrees: Ints  # (shapes,)
    rooms: Ints  # (shapes,): tokens that a group holds
    constants: Floats  # (shapes,): seconds of a group however little it holds

    @cached_property
    def rank_seconds(self) -> Floats:
        """Rank-seconds of each item on each shape: (items, shapes)."""
        return self.seconds * self.degrees

    @property
    def least_rank_seconds(self) -> float:
        """Rank-seconds of all items, each on its cheapest shape."""
        return float(self.rank_seconds.min(axis=1).sum())

    @property
    def least_step_seconds(self) -> float:
        """Seconds below which no packing is where ranks synchronise once per step: all ranks are always busy, and each
        item shares its group's constant with as many as fit of the smallest size.
        """
        fitting = np.maximum(1, self.rooms // self.sizes.min()) if self.problem.offload is None else np.inf
        rank_seconds = self.rank_seconds + self.degrees * self.constants / fitting
        return float(rank_seconds.min(axis=1).sum()) / self.problem.ranks + self.problem.step_seconds


def packing_table(problem: PackingProblem) -> PackingTable:
    """The arrays of a packing problem; equal sizes are priced once."""
    items = sorted(problem.sizes, key=lambda item: (-problem.sizes[item], item))
    sizes = np.array([problem.sizes[item] for item in items], dtype=np.int64)
    distinct, index = np.unique(sizes, return_inverse=True)
    least = [(size, problem.least_tokens(size)) for size in distinct.tolist()]
    priced = [
        [s.line.item_seconds(size) if tokens <= s.room else np.inf for s in problem.shapes] for size, tokens in least
    ]
    seconds = np.array(priced)[index.reshape(-1)]
    degrees = np.array([shape.degree for shape in problem.shapes], dtype=np.int64)
    for number, item in enumerate(items if problem.fixed else ()):
        if item in problem.fixed:
            seconds[number, degrees != problem.fixed[item]] = np.inf
    return PackingTable(
        problem=problem,
        items=np.array(items, dtype=np.int64),
        sizes=sizes,
        seconds=np.ascontiguousarray(seconds),
        degrees=degrees,
        rooms=np.array([shape.room for shape in problem.shapes], dtype=np.int64),
        constants=np.array([shape.line.const for shape in problem.shapes]),
    )
