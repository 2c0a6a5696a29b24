"""Collectives over groups of one size, all groups of that size at once: that is how they run in a plan.

Between two of them in a step all ranks compute. On a CPU that makes them slower than one behind another: the caches
hold something else, and threads that slept have to be woken on busy cores. So they are timed behind some work. Messages
between two ranks are asked for ahead and travel beside compute: these are timed one behind another.
"""

from collections.abc import Callable

import torch

from planner.launch.collectives import prepare
from planner.launch.groups import Groups
from planner.profiling.grid import group_sizes
from planner.profiling.piece import Piece, Span
from planner.profiling.timing import behind, waiting

# Of the matrices that are multiplied between two collectives. It takes some milliseconds: of a core, whose caches they
# fill, and of a GPU, where the next launch hides behind it.
WIDTH = {"cpu": 512, "cuda": 4096}


class CollectiveBench:
    """Runs the pieces of all collectives. Every rank runs the same one at the same time, each in its own group."""

    def __init__(self, rank: int, ranks: int, device: torch.device) -> None:
        self.rank, self.device = rank, device
        self.matrix = torch.ones(WIDTH[device.type], WIDTH[device.type], device=device)
        self.groups = Groups(block(first, size) for size in group_sizes(ranks) for first in range(0, ranks, size))

    def run(self, piece: Piece) -> list[Span]:
        size, message = piece.sizes
        call = self.prepared(piece, size, message)
        if piece.kind == "p2p":
            return [waiting(lambda: [call() for _ in range(piece.repeats)], self.device)]
        return behind(lambda: self.matrix @ self.matrix, call, piece.repeats, self.device)

    def prepared(self, piece: Piece, size: int, message: int) -> Callable[[], None]:
        group = self.groups[block(self.rank - self.rank % size, size)]
        return prepare(piece.kind, group, message, self.device)  # type: ignore[arg-type]


def block(first: int, size: int) -> tuple[int, ...]:
    return tuple(range(first, first + size))
