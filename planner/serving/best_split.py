"""The best static split of a family under an order of queues: exact over the declared space, as far as bounds decide.

Splits come in the order of what their work alone would let them do. One whose bound (split_bounds.py) is no better than
the best that is known is passed over; of any other one run tells whether it is better, first of the first requests, as
who is late in a short run is later in a long one; and only then how much.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.callbacks import OnProgress, silent
from planner.serving.goodput import WITHIN, Question, greatest, in_time
from planner.serving.split_bounds import SplitBounds
from planner.serving.splits import FAMILIES, TEXT_ALIKE, Family, Split, every_split, setup_of
from planner.simulate.serving import QueueOrder

ORDERS: tuple[QueueOrder, ...] = ("fifo", "shortest")


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


def best_split(
    question: Question, splits: Sequence[Split], order: QueueOrder, on_split: OnProgress = silent, known: float = 0.0
) -> Found:
    """The best of some splits, at least one; of those that are better than `known` requests a second."""
    setup = replace(question.setup, order=order)
    bounds = SplitBounds(question.requests, question.service, question.prices, setup)
    able = sorted(((bounds.bound(split), split) for split in splits), key=lambda each: (-each[0], each[1].gpus))
    most = able[0][0]
    long, quick = question.lasting(most), question.quick()
    best, times, tried = None, known / question.rate, 0
    for number, (bound, split) in enumerate(able):
        on_split(number, len(able), split.text)
        needed = times * (1.0 + WITHIN)
        if bound <= needed or not bound:
            break
        tried += 1
        passes = passing(long, split, order)
        if needed and not (passing(quick, split, order)(needed) and passes(needed)):
            continue
        found = greatest(passes, needed, bound)
        if found > times:
            best, times = split, found
    return Found(splits[0].family, order, best, times * question.rate, most * question.rate, tried, len(able) - tried)


def passing(question: Question, split: Split, order: QueueOrder) -> Callable[[float], bool]:
    """Whether a split is in time at times the rate of the requests."""
    setup = setup_of(split, replace(question.setup, order=order))
    fleet = split.fleet(question.prices)
    return lambda times: in_time(question, fleet, setup, times)


def family_splits(question: Question, family: Family, gpus: int, degrees: Sequence[int]) -> list[Split]:
    """The splits of a family with so many GPUs; none of one that is another where no request has images."""
    images = any(each.images for each in question.requests)
    if (not images and family in TEXT_ALIKE) or gpus < len(FAMILIES[family]):
        return []
    return [*every_split(family, gpus, degrees)]
