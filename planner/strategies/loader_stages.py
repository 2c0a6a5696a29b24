"""Which stage of a data loader is given how many cores, and how much of a link: the slowest is as quick as can be.

Resource isolation of BGL (NSDI 2023). With c_k units of its pool a stage takes T_k(c_k) = a_k / c_k + d_k
for an item:

    minimise    T
    such that   T_k(c_k) <= T               for each stage k with a pool
                Σ_{k in pool p} c_k = C_p   for each pool p,   c_k >= 1 whole

Every T_k falls in c_k, so that units which a time T asks for, Σ min {c : T_k(c) <= T}, rise as T falls, and the least T
for which there are enough is found by bisection over all T_k(c) (`least_seconds`): no other value can be the slowest.
That is exact, and its own bound: the next smaller T needs more units than there are. What is left goes one by one to
whichever stage is slowest then. Pools do not compete, and each is divided by itself.

A pool with fewer units than stages is shared: each unit takes an item through all of its stages, as in torch's
DataLoader, and these are one stage with the sums of their a and d.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import NDArray

from planner.costs import LoaderWork, loader_work
from planner.specs.base import with_fields
from planner.specs.loader import LoaderFile, LoaderShares

SUMMARY = "cores and bandwidth of the stages of a data loader"


@dataclass(frozen=True, slots=True)
class DividedLoader:
    """A loader with its shares, and what else would make it quicker."""

    loader: LoaderFile
    shares: LoaderShares
    work: tuple[LoaderWork, ...]  # stages, those of a shared pool as one
    units: tuple[int, ...]  # of each
    one_more: dict[str, float]  # by pool: seconds of an item with one unit more

    @property
    def loader_bound(self) -> bool | None:
        """Whether the loader sets the step, and not who trains; None: what training takes is not known."""
        return self.shares.seconds > self.loader.trainer_seconds if self.loader.trainer_seconds else None

    @property
    def seconds(self) -> float:
        """Seconds of an item, of the loader or of who trains."""
        return max(self.shares.seconds, self.loader.trainer_seconds)


def divide_loader(loader: LoaderFile) -> DividedLoader:
    """Divide every pool of a loader among its stages."""
    work = loader_work(loader)
    units = divided(loader, work)
    seconds = [each.seconds_with(count) for each, count in zip(work, units, strict=True)]
    slowest = work[int(np.argmax(seconds))]
    equal = max(each.seconds_with(count) for each, count in zip(work, equal_split(loader, work), strict=True))
    shares = LoaderShares(
        units={name: count for each, count in zip(work, units, strict=True) if each.pool for name in each.stages},
        seconds=max(seconds),
        slowest=slowest.name,
        equal_seconds=equal,
    )
    return DividedLoader(loader, shares, work, units, one_more_unit(loader))


def one_more_unit(loader: LoaderFile) -> dict[str, float]:
    """By pool, the seconds of an item where it has one unit more."""
    gained = {}
    for name, pool in loader.pools.items():
        if any(stage.pool == name for stage in loader.stages):
            more = {**loader.pools, name: with_fields(pool, units=min(10_000, pool.units + 1))}
            wider = with_fields(loader, pools=more)
            work = loader_work(wider)
            counts = divided(wider, work)
            gained[name] = max(each.seconds_with(count) for each, count in zip(work, counts, strict=True))
    return gained


def divided(loader: LoaderFile, work: Sequence[LoaderWork]) -> tuple[int, ...]:
    """The units of each stage; 1 of those without a pool."""
    units = [1] * len(work)
    for name, pool in loader.pools.items():
        members = [at for at, each in enumerate(work) if each.pool == name]
        if members:
            for at, count in zip(members, divide([work[at] for at in members], pool.units), strict=True):
                units[at] = count
    return tuple(units)


def divide(work: Sequence[LoaderWork], units: int) -> list[int]:
    """Whole units of each stage of one pool, at least one, that sum to `units`: the slowest stage is as quick as can
    be.
    """
    times = [each.seconds_with(np.arange(1, units + 1)) for each in work]  # by stage (units,), falling
    least = least_seconds(times, units)
    counts = [asked_units(of, least) for of in times]
    slowest = [(-of[count - 1], at) for at, (of, count) in enumerate(zip(times, counts, strict=True))]
    heapify(slowest)
    for _ in range(units - sum(counts)):
        _, at = slowest[0]
        counts[at] += 1
        heapreplace(slowest, (-times[at][counts[at] - 1], at))
    return counts


def least_seconds(times: Sequence[NDArray[np.float64]], units: int) -> float:
    """The least seconds of the slowest stage, whose `times` are by units: one of them, found by bisection."""
    tried = np.unique(np.concatenate(times))
    low, high = 0, len(tried) - 1  # with the largest each stage takes one unit
    while low < high:
        middle = (low + high) // 2
        if sum(asked_units(of, tried[middle]) for of in times) <= units:
            high = middle
        else:
            low = middle + 1
    return float(tried[low])


def asked_units(times: NDArray[np.float64], seconds: float) -> int:
    """The fewest units with which a stage takes at most `seconds`; more than there are where none do."""
    return int(np.searchsorted(-times, -seconds)) + 1


def equal_split(loader: LoaderFile, work: Sequence[LoaderWork]) -> list[int]:
    """Units where each pool is split equally, the first stages getting what is left."""
    counts = []
    for at, each in enumerate(work):
        members = [other for other, one in enumerate(work) if one.pool == each.pool]
        units = loader.pools[each.pool].units if each.pool else len(members)
        counts.append(units // len(members) + (members.index(at) < units % len(members)))
    return counts
