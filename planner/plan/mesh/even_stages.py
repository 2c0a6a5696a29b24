"""Layers of pipeline stages, or of their chunks, where a job does not say them: as even as they can be."""

from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from planner.specs.base import Layers
from planner.specs.parallelism import Parallelism

Number = Any  # a number, or an array of them


def even_layers_before(layers: int, chunks: Number, chunk: Number) -> Number:
    """Return the layers in front of a chunk, of so many. Where they do not divide evenly, embedding and head count as
    one layer each; where that does not either, chunks differ by one.
    """
    with_ends = (np.mod(layers, chunks) != 0) & (np.mod(layers + 2, chunks) == 0)
    plain = np.floor(layers * chunk / chunks + 0.5)
    return np.where(with_ends, np.clip((layers + 2) * chunk / chunks - 1, 0, layers), plain)


@lru_cache(maxsize=1024)
def even_stages(layers: int, chunks: int) -> tuple[Layers, ...]:
    """Return the layers of each of so many chunks; none where one has them all."""
    cuts = [int(even_layers_before(layers, chunks, chunk)) for chunk in range(chunks + 1)]
    return tuple(Layers(range(first, last)) for first, last in pairwise(cuts)) if chunks > 1 else ()


def has_even_stages(layout: Parallelism) -> bool:
    """Whether the stages of a layout, if it says any, are those that it would have if nobody said them."""
    stages = layout.stages or ()
    return len(stages) < 2 or stages == even_stages(sum(map(len, stages)), len(stages))
