"""How many ranks a module that is alone, or reads encoders, may have: all, or fewer that divide better.

Degrees multiply to the number of ranks, and replicas divide the samples: on 34 GPUs tp, cp and pp are 1, 2, 17 or 34,
and a plan on 32 of them may take less. So the smallest power of two is left out, then the next, as long as there is
another, less than a node's eight or an eighth of all: 34 and 32; 100 and 96; of a power of two all.
"""

from collections.abc import Iterator

from planner.specs.base import Ranks
from planner.specs.parallelism import Parallelism

UNUSED, SHARE_UNUSED = 7, 8  # ranks that may have nothing to do, at least; of many ranks one in so many


def rank_counts(size: int, fixed: Parallelism) -> Iterator[int]:
    """Numbers of ranks of a module alone: as many as are fixed; else all `size` first, and all alone where replicas are
    fixed, which are as many as ranks allow.
    """
    if isinstance(fixed.ranks, Ranks):
        yield len(fixed.ranks)
        return
    count, least = size, size if fixed.dp else max(1, size - max(UNUSED, size // SHARE_UNUSED))
    while count >= least:
        yield count
        count &= count - 1
