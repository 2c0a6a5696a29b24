"""A cheap estimate of a step of several modules, by which assignments of samples and items are compared.

Replicas of the LLM advance micro-batch by micro-batch, each with a clock of its own. An encoder's forward runs directly
before its first reader: ranks of a replica stop for what they compute, and its pipeline waits for all outputs that the
micro-batch reads, from wherever they come. Backwards of encoders come last, and begin where a pipeline drains.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs import Floats
from planner.specs.base import Ranks


class Read(NamedTuple):
    """What a replica of the LLM waits for."""

    replica: int
    forward: int  # the micro-batch ahead of which it is computed
    source: int  # the replica of the encoder


@dataclass(frozen=True, slots=True)
class EncoderWork:
    """What the replicas of one encoder compute, and who waits for it."""

    replicas: Sequence[Ranks]
    forward: Floats  # (micro-batches, replicas) seconds ahead of each
    backward: Floats  # (micro-batches, replicas) seconds
    reads: Sequence[Sequence[Read]]  # by micro-batch
    synchronised: bool  # all replicas wait for each other in every micro-batch


@dataclass(frozen=True, slots=True)
class PipelineWork:
    """What the replicas of the LLM compute."""

    replicas: Sequence[Ranks]
    passes: Floats  # (replicas, micro-batches) seconds of both passes on the slowest stage
    drain: Floats  # (ranks,) seconds that a rank idles behind its last pass
    synchronised: bool


def step_estimate(llm: PipelineWork, encoders: Sequence[EncoderWork]) -> float:
    """Seconds of a step, without what no assignment changes."""
    count, clocks = len(llm.replicas), Clocks(llm, encoders)
    done = [np.zeros_like(each.forward) for each in encoders]
    for number in range(llm.passes.shape[1]):
        for each, beside, ended in zip(encoders, clocks.beside, done, strict=True):
            if each.forward[number].any():
                ended[number] = clocks.run(beside, each.forward[number], each.synchronised)
        for each, ended in zip(encoders, done, strict=True):
            for read in each.reads[number]:
                clocks.now[read.replica] = max(clocks.now[read.replica], ended[read.forward, read.source])
        clocks.now[:count] += llm.passes[:, number]
        if llm.synchronised:
            clocks.now[:count] = clocks.now[:count].max()
    return clocks.end(llm, encoders)


class Clocks:
    """Seconds at which each replica of the LLM, and each of an encoder on no rank of it, is with its work."""

    def __init__(self, llm: PipelineWork, encoders: Sequence[EncoderWork]) -> None:
        of_rank = {rank: number for number, ranks in enumerate(llm.replicas) for rank in ranks}
        every = len(llm.replicas)
        for each in encoders:
            for rank in (rank for ranks in each.replicas for rank in ranks if rank not in of_rank):
                of_rank[rank], every = every, every + 1
        self.of_rank, self.now = of_rank, np.zeros(every)
        self.beside = [self.of_replicas(each.replicas) for each in encoders]

    def of_replicas(self, replicas: Sequence[Ranks]) -> NDArray[np.bool_]:
        """(replicas, clocks) which clocks the ranks of each replica have."""
        found = np.zeros((len(replicas), len(self.now)), dtype=bool)
        for number, ranks in enumerate(replicas):
            found[number, [self.of_rank[rank] for rank in ranks]] = True
        return found

    def run(self, beside: NDArray[np.bool_], seconds: Floats, synchronised: bool) -> Floats:
        """When each replica of an encoder ends its forward; clocks beside those that have any go on from there."""
        ended: Floats = np.where(beside, self.now, 0.0).max(axis=1) + seconds
        busy = seconds > 0.0
        if synchronised:
            ended[:], busy = ended.max(), np.full_like(busy, True)
        self.now = np.maximum(self.now, np.where(beside & busy[:, None], ended[:, None], 0.0).max(axis=0))
        return ended

    def end(self, llm: PipelineWork, encoders: Sequence[EncoderWork]) -> float:
        """When the last backward of an encoder ends."""
        more, waits = -llm.drain, 0.0
        for each in encoders:
            if each.synchronised:
                waits += float(each.backward.max(axis=1).sum())
                continue
            for ranks, seconds in zip(each.replicas, each.backward.sum(axis=0).tolist(), strict=True):
                more[list(ranks)] += seconds
        ends = [self.now[clock] + max(0.0, more[rank]) for rank, clock in self.of_rank.items()]
        return float(max(ends)) + waits
