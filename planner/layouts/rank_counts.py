"""How many ranks a module that is alone may have: all, or fewer that divide better.

Degrees multiply to the number of ranks, and replicas divide the samples: on 34 GPUs tp, cp and pp are 1, 2, 17 or 34,
and a plan on 32 of them may take less. So the smallest power of two is left out, then the next, as long as there is
another: 34 and 32; 100, 96 and 64; of a power of two all.
"""

from collections.abc import Iterator

from planner.specs.parallelism import Parallelism


def rank_counts(size: int, fixed: Parallelism) -> Iterator[int]:
    """Numbers of ranks of a module alone, all `size` first; where replicas are fixed, which are as many as ranks allow,
    only these.
    """
    count = size
    while count:
        yield count
        count = 0 if fixed.dp else count & (count - 1)
