"""What unequal sequences add to a step of equal ones, by how they fall into replicas and micro-batches.

A plan gives each item, longest first, to the least loaded replica and there to the least loaded micro-batch. That is
done here once for each number of replicas, of micro-batches and of sequences in one, with the seconds of an item on one
rank; what other degrees weigh differently is left to simulation.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs import LayoutColumns, MachineModel, distinct_values
from planner.costs.step import item_seconds, one_rank
from planner.layouts.space.layout_fields import TrainingSetup

Floats = NDArray[np.float64]


class UnequalBatches(NamedTuple):
    """How unequal the micro-batches of layouts are, (layouts,) each."""

    most_tokens: Floats  # of a micro-batch
    fullest_replica: Floats  # seconds of all micro-batches of a replica: the most over the mean
    in_step: Floats  # the same where all replicas wait for the slowest in every micro-batch
    largest: Floats  # seconds of a micro-batch: the most over the mean


def unequal_batches(trained: TrainingSetup, at: LayoutColumns, machine: MachineModel) -> UnequalBatches:
    """How unequal the micro-batches of these layouts are."""
    sequences = np.rint(at.micro_batch / trained.mean_share)
    each = (at.pipelines, micro_batch_counts(trained, at), sequences)
    columns = [np.atleast_1d(np.asarray(column, dtype=float)) for column in each]
    first, place = distinct_values(np.broadcast_arrays(*columns))
    loads = item_seconds(trained.module, one_rank(at), machine, trained.sizes)
    found = np.array([cell_shares(loads, trained.sizes, *(int(each[n]) for each in columns)) for n in first])
    return UnequalBatches(*found[place].T)


def micro_batch_counts(trained: TrainingSetup, at: LayoutColumns) -> Floats:
    """Micro-batches that items fall into on each replica; interleaving has a multiple of the pipeline's ranks."""
    sequences = np.rint(at.micro_batch / trained.mean_share)
    count = np.ceil(len(trained.sizes) / (at.pipelines * sequences))
    return np.asarray(np.where(np.asarray(at.vpp) > 1, np.ceil(count / at.pp) * at.pp, count))


@lru_cache(maxsize=2**14)
def cell_shares(
    loads: tuple[float, ...], lengths: tuple[int, ...], replicas: int, count: int, most: int
) -> tuple[float, ...]:
    """The four numbers of UnequalBatches, of `replicas` with `count` micro-batches of at most so many sequences."""
    cells = [
        cell
        for items in replica_items(loads, lengths, replicas, count * most)
        for cell in assign_least_loaded(items, loads, count, most)
    ]
    items, cell_of = [item for cell in cells for item in cell], np.repeat(range(len(cells)), [*map(len, cells)])
    seconds = np.bincount(cell_of, np.array(loads)[items], len(cells)).reshape(replicas, count)
    tokens = np.bincount(cell_of, np.array(lengths)[items], len(cells))
    mean = seconds.sum() / replicas
    return (
        tokens.max(),
        seconds.sum(axis=1).max() / mean,
        seconds.max(axis=0).sum() / mean,
        seconds.max() * count / mean,
    )


@lru_cache(maxsize=2**10)
def replica_items(loads: tuple[float, ...], lengths: tuple[int, ...], replicas: int, room: int) -> list[list[int]]:
    """The items of each replica, which has room for so many: micro-batches of more or fewer sequences share them."""
    order = sorted(range(len(lengths)), key=lambda item: -lengths[item])
    return assign_least_loaded(order, loads, replicas, room)


def assign_least_loaded(
    items: Sequence[int], loads: Mapping[int, float] | Sequence[float], bins: int, room: int
) -> list[list[int]]:
    """Assign each item in turn to the least loaded bin with room for another; of equal ones to the first."""
    assigned: list[list[int]] = [[] for _ in range(bins)]
    least = [(0.0, bin_) for bin_ in range(bins)]
    for item in items:
        load, bin_ = heappop(least)
        assigned[bin_].append(item)
        if len(assigned[bin_]) < room:
            heappush(least, (load + loads[item], bin_))
    return assigned
