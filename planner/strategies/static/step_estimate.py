"""A cheap estimate of a step of several modules, by which assignments of samples and items are compared.

Replicas of the LLM advance micro-batch by micro-batch, each with a clock of its own. An encoder's forward runs directly
before the first micro-batch that reads it, or so many before as its layout says: ranks of a replica stop for what they
compute, and its pipeline waits for all outputs that the micro-batch reads, from wherever they come. Backwards of
encoders run behind the last micro-batch, where a pipeline drains, or each behind the micro-batch that reads last; on
ranks beside the LLM's none ends before those of what was read last have followed their readers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs import Floats, Ints
from planner.specs.base import Ranks


class Read(NamedTuple):
    """What replicas of the LLM wait for."""

    replicas: range
    forward: int  # the micro-batch in which it is computed
    source: int  # the place of the encoder


@dataclass(frozen=True, slots=True)
class EncoderWork:
    """What one encoder computes on each of its places, and who waits for it."""

    places: Sequence[Ranks]
    forward: Floats  # (micro-batches, places) seconds
    backward: Floats  # the same
    before: Ints  # (micro-batches, places) the micro-batch of the LLM that a forward runs ahead of
    behind: Ints  # the same of a backward, behind it; that after the last: at the end
    reads: Sequence[Sequence[Read]]  # by micro-batch of the LLM
    synchronised: bool  # all places wait for each other in every micro-batch


@dataclass(frozen=True, slots=True)
class PipelineWork:
    """What the replicas of the LLM compute."""

    replicas: Sequence[Ranks]
    passes: Floats  # (replicas, micro-batches) seconds of both passes on the slowest stage
    warm_up: Floats  # (ranks,) seconds that a rank idles ahead of its first pass
    drain: Floats  # (ranks,) and behind its last
    synchronised: bool  # all replicas wait for each other in every micro-batch
    together: Sequence[Sequence[range]] = ()  # by micro-batch, replicas that begin together, where groups change


def step_estimate(llm: PipelineWork, encoders: Sequence[EncoderWork]) -> float:
    """Seconds of a step, without what no assignment changes."""
    count, clocks, synchronised = len(llm.replicas), Clocks(llm, encoders), 0.0
    ended, read_last = ([np.zeros_like(each.forward) for each in encoders] for _ in range(2))
    for number in range(llm.passes.shape[1]):
        for each, beside, ends in zip(encoders, clocks.beside, ended, strict=True):
            runs = each.before == number
            idle = clocks.idle(llm.warm_up, each.places) if number == 0 else 0.0
            at = np.flatnonzero(runs.any(axis=1))
            found = clocks.run(beside, np.where(runs, each.forward, 0.0)[at], each.synchronised, idle)
            ends[at] = np.where(runs[at], found, ends[at])
        for each, ends in zip(encoders, ended, strict=True):
            for read in each.reads[number]:
                clocks.wait(read.replicas, ends[read.forward, read.source])
        for replicas in llm.together[number] if llm.together else ():
            clocks.wait(replicas, clocks.now[replicas.start : replicas.stop].max())
        clocks.wait(range(count), synchronised)
        clocks.now[:count] += llm.passes[:, number]
        synchronised = clocks.now[:count].max() if llm.synchronised else 0.0
        for each, until in zip(encoders, read_last, strict=True):
            clocks.note_readers(each.reads[number], until)
        for each, beside in zip(encoders, clocks.beside, strict=True):
            runs = each.behind == number
            at = np.flatnonzero(runs.any(axis=1))
            clocks.run(beside, np.where(runs, each.backward, 0.0)[at], each.synchronised)
    return max([clocks.end(llm, encoders), *map(clocks.end_apart, encoders, clocks.apart, read_last)])


class Clocks:
    """Seconds at which each replica of the LLM, and each rank of an encoder beside none of it, is with its work."""

    def __init__(self, llm: PipelineWork, encoders: Sequence[EncoderWork]) -> None:
        of_rank = {rank: number for number, ranks in enumerate(llm.replicas) for rank in ranks}
        every = len(llm.replicas)
        for each in encoders:
            for rank in (rank for ranks in each.places for rank in ranks if rank not in of_rank):
                of_rank[rank], every = every, every + 1
        self.of_rank, self.now = of_rank, np.zeros(every)
        self.beside = [self.of_places(each.places) for each in encoders]
        self.apart = [np.flatnonzero(~each[:, : len(llm.replicas)].any(axis=1)) for each in self.beside]  # places

    def of_places(self, places: Sequence[Ranks]) -> NDArray[np.bool_]:
        """(places, clocks) which clocks the ranks of each place have."""
        found = np.zeros((len(places), len(self.now)), dtype=bool)
        for number, ranks in enumerate(places):
            found[number, [self.of_rank[rank] for rank in ranks]] = True
        return found

    def wait(self, replicas: range, until: float) -> None:
        """Let replicas of the LLM wait."""
        own = self.now[replicas.start : replicas.stop]
        np.maximum(own, until, out=own)

    def idle(self, warm_up: Floats, places: Sequence[Ranks]) -> Floats:
        """(places,) seconds of idling that none of a place's ranks lacks."""
        return np.array([warm_up[list(ranks)].min() for ranks in places])

    def run(self, beside: NDArray[np.bool_], seconds: Floats, synchronised: bool, idle: Floats | float = 0.0) -> Floats:
        """(passes, places) when each place of an encoder ends its passes, `seconds` of the same shape, one after
        another; clocks beside those that have any go on from there, less what their ranks would idle in any case.
        """
        if not len(seconds):
            return seconds
        begin = np.where(beside, self.now, 0.0).max(axis=1)
        if synchronised:
            begin = np.full_like(begin, begin.max())
            seconds = np.broadcast_to(seconds.max(axis=1)[:, None], seconds.shape)
        ended: Floats = begin + np.cumsum(seconds, axis=0)
        goes_on = np.where(seconds.any(axis=0), ended[-1] - idle, 0.0)
        self.now = np.maximum(self.now, np.where(beside, goes_on[:, None], 0.0).max(axis=0))
        return ended

    def note_readers(self, reads: Sequence[Read], until: Floats) -> None:
        """Note when those who read are through with it, in (micro-batches, places) of what they read."""
        for read in reads:
            through = self.now[read.replicas.start : read.replicas.stop].max()
            until[read.forward, read.source] = max(float(until[read.forward, read.source]), float(through))

    def end_apart(self, encoder: EncoderWork, apart: Ints, read_last: Floats) -> float:
        """When the last backward of an encoder ends on places `apart` from the LLM, where none begins before those who
        read what it is of are through.
        """
        left = np.cumsum(encoder.backward[::-1], axis=0)[::-1]
        ends = np.where(encoder.backward > 0.0, read_last + left, 0.0)
        return float(ends[:, apart].max(initial=0.0))

    def end(self, llm: PipelineWork, encoders: Sequence[EncoderWork]) -> float:
        """When the last backward of an encoder ends."""
        more, waits = -llm.drain, 0.0
        for each in encoders:
            last = np.where(each.behind >= llm.passes.shape[1], each.backward, 0.0)
            if each.synchronised:
                waits += float(last.max(axis=1, initial=0.0).sum())
                continue
            for ranks, seconds in zip(each.places, last.sum(axis=0).tolist(), strict=True):
                more[list(ranks)] += seconds
        ends = [self.now[clock] + max(0.0, more[rank]) for rank, clock in self.of_rank.items()]
        return float(max(ends)) + waits
