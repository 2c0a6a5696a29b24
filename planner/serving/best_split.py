"""The best static split of a family under an order of queues: exact over the declared space, as far as bounds decide.

Splits come in the order of what their work alone would let them do. One whose bound (split_bounds.py) is no better than
the best that is known is passed over; of any other one run tells whether it is better, first of the first requests, as
who is late in a short run is later in a long one; and only then how much.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from planner.callbacks import OnProgress, silent
from planner.serving.goodput import WITHIN, Question, greatest
from planner.serving.split_bounds import SplitBounds
from planner.serving.splits import FAMILIES, OF_IMAGES, Family, Split, every_split
from planner.simulate.serving import QueueOrder

ORDERS: tuple[QueueOrder, ...] = ("fifo", "shortest")
QUICK_RUN = 600  # requests of a run that tells soon what is late


@dataclass(frozen=True, slots=True)
class Found:
    """The best of some splits in an order: its goodput, and what none of them has more of, in requests a second."""

    family: Family
    order: QueueOrder
    split: Split | None  # None: none serves enough requests in time, at any rate
    goodput: float
    bound: float
    tried: int  # of which the clock told
    passed: int  # that are no better, by their bounds


def best_split(question: Question, splits: Sequence[Split], order: QueueOrder, on_split: OnProgress = silent) -> Found:
    """The best of some splits, at least one."""
    bounds = SplitBounds(question)
    able = sorted(((bounds.bound(split), split) for split in splits), key=lambda each: (-each[0], each[1].gpus))
    most = able[0][0]
    long, quick = question.lasting(most), replace(question, requests=question.requests[:QUICK_RUN])
    best, times, tried = None, 0.0, 0
    for number, (bound, split) in enumerate(able):
        on_split(number, len(able), split.text)
        needed = times * (1.0 + WITHIN)
        if bound <= needed or not bound:
            break
        tried += 1
        if needed and not (quick.in_time(split, order, needed) and long.in_time(split, order, needed)):
            continue
        found = greatest(partial(long.in_time, split, order), needed, bound)
        if found > times:
            best, times = split, found
    return Found(splits[0].family, order, best, times * question.rate, most * question.rate, tried, len(able) - tried)


def family_splits(question: Question, family: Family, gpus: int) -> list[Split]:
    """The splits of a family with so many GPUs; none of one that is another where no request has images."""
    images = any(each.images for each in question.requests)
    if (not images and family in OF_IMAGES) or gpus < len(FAMILIES[family]):
        return []
    return [*every_split(family, gpus, [*question.prices])]
