"""Layers that are recomputed in full as the first so many of each chunk of a pipeline."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from planner.plan.mesh.even_stages import even_stages
from planner.specs.base import Layers
from planner.specs.parallelism import Parallelism, Recompute


def first_layers(count: int, sizes: Sequence[int]) -> Recompute | dict[str | int, Recompute]:
    """Return what a layout says where so many layers of each chunk, of these sizes, are recomputed in full."""
    starts = accumulate(sizes, initial=0)
    full = Layers(n for start, size in zip(starts, sizes, strict=False) for n in range(start, start + min(count, size)))
    if len(full) == sum(sizes):
        return "full"
    return {full.to_file(): "full"} if full else "none"


def block_size(how: Mapping[str | int, Recompute], sizes: Sequence[int]) -> int:
    """Return how many layers of each chunk these ranges recompute in full; 0 where that is not what they do."""
    full = {layer for layers, own in how.items() if own == "full" for layer in Layers.from_file(layers)}
    if any(own not in ("full", "none") for own in how.values()):
        return 0
    for count in range(1, max(sizes) + 1):
        wanted = first_layers(count, sizes)
        if {*range(sum(sizes))} == full if wanted == "full" else {*Layers.from_file(next(iter(wanted)))} == full:
            return count
    return 0


def chunk_sizes(layout: Parallelism, layers: int, chunks: int) -> list[int]:
    """Return the layers of each of so many chunks of a layout."""
    stages = layout.stages or even_stages(layers, chunks)
    return [len(stage) for stage in stages] or [layers]
