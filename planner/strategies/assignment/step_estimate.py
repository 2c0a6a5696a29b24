"""A cheap estimate of a step of several modules, by which assignments of samples and items are compared.

Replicas of the LLM advance turn by turn, each with a clock of its own: of what their first stage runs in its schedule,
a turn is the beginning of a micro-batch, or the end of its backward. An encoder's forward runs directly before the
first micro-batch that reads it begins, or so many before as its layout says: ranks of a replica stop for what they
compute, and its pipeline waits for all outputs that the micro-batch reads, from wherever they come. Backwards of
encoders run when the last micro-batch has ended, where a pipeline drains, or each when that has which reads last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

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


class Turn(NamedTuple):
    """A micro-batch begins on the first stage, F, or its backward has ended there, B."""

    phase: Literal["F", "B"]
    number: int  # of the micro-batch
    seconds: Floats  # (replicas,) that passes take between the turn before and this one


@dataclass(frozen=True, slots=True)
class PipelineWork:
    """What the replicas of the LLM compute."""

    replicas: Sequence[Ranks]
    turns: Sequence[Turn]
    warm_up: Floats  # (ranks,) seconds that a rank idles ahead of its first pass
    drain: Floats  # (ranks,) and behind its last
    synchronised: bool  # all replicas wait for each other in every turn
    together: Sequence[Sequence[range]] = ()  # by micro-batch, replicas that begin together, where groups change

    @property
    def count(self) -> int:
        """The number of micro-batches."""
        return 1 + max(turn.number for turn in self.turns)


def step_estimate(llm: PipelineWork, encoders: Sequence[EncoderWork]) -> float:
    """Seconds of a step, without what no assignment changes."""
    every, clocks, synchronised = range(len(llm.replicas)), Clocks(llm, encoders), 0.0
    for turn in llm.turns:
        if turn.seconds.any():
            clocks.wait(every, synchronised)
            clocks.now[: len(every)] += turn.seconds
            synchronised = clocks.now[: len(every)].max() if llm.synchronised else 0.0
        if turn.phase == "B":
            clocks.run_backwards(turn.number)
            continue
        clocks.run_forwards(turn.number, llm.warm_up)
        if llm.synchronised:
            clocks.wait(every, clocks.now[: len(every)].max())
        for replicas in llm.together[turn.number] if llm.together else ():
            clocks.wait(replicas, clocks.now[replicas.start : replicas.stop].max())
    return clocks.end(llm)


class Clocks:
    """Seconds at which each replica of the LLM, and each rank of an encoder beside none of it, is with its work."""

    def __init__(self, llm: PipelineWork, encoders: Sequence[EncoderWork]) -> None:
        of_rank = {rank: number for number, ranks in enumerate(llm.replicas) for rank in ranks}
        every = len(llm.replicas)
        for each in encoders:
            for rank in (rank for ranks in each.places for rank in ranks if rank not in of_rank):
                of_rank[rank], every = every, every + 1
        self.of_rank, self.now, self.encoders = of_rank, np.zeros(every), encoders
        self.beside = [self.of_places(each.places) for each in encoders]
        self.ended = [np.zeros_like(each.forward) for each in encoders]
        self.readers = [self.of_readers(each) for each in encoders]

    def of_places(self, places: Sequence[Ranks]) -> NDArray[np.bool_]:
        """(places, clocks) which clocks the ranks of each place have."""
        found = np.zeros((len(places), len(self.now)), dtype=bool)
        for number, ranks in enumerate(places):
            found[number, [self.of_rank[rank] for rank in ranks]] = True
        return found

    def of_readers(self, encoder: EncoderWork) -> NDArray[np.bool_]:
        """(micro-batches, places, clocks) which clocks those have who read what a place computes in a pass."""
        found = np.zeros((*encoder.forward.shape, len(self.now)), dtype=bool)
        for read in (read for of_number in encoder.reads for read in of_number):
            found[read.forward, read.source, read.replicas.start : read.replicas.stop] = True
        return found

    def run_forwards(self, number: int, warm_up: Floats) -> None:
        """Run what runs ahead of a micro-batch of the LLM; its replicas wait for all that they read in it."""
        for each, beside, ended in zip(self.encoders, self.beside, self.ended, strict=True):
            runs = each.before == number
            at = np.flatnonzero(runs.any(axis=1))
            if len(at):
                idle = self.idle(warm_up, each.places) if number == 0 else 0.0
                found = self.run(beside, np.where(runs, each.forward, 0.0)[at], each.synchronised, idle)
                ended[at] = np.where(runs[at], found, ended[at])
        for each, ended in zip(self.encoders, self.ended, strict=True):
            for read in each.reads[number]:
                self.wait(read.replicas, ended[read.forward, read.source])

    def run_backwards(self, number: int) -> None:
        """Run what runs behind a micro-batch of the LLM, once those have got there who read it."""
        for each, beside, readers in zip(self.encoders, self.beside, self.readers, strict=True):
            runs = each.behind == number
            at = np.flatnonzero(runs.any(axis=1))
            if len(at):
                read = np.where(runs[at, :, None] & readers[at], self.now, 0.0).max(axis=(0, 2))
                self.run(beside, np.where(runs, each.backward, 0.0)[at], each.synchronised, begin=read)

    def wait(self, replicas: range, until: float) -> None:
        """Let replicas of the LLM wait."""
        own = self.now[replicas.start : replicas.stop]
        np.maximum(own, until, out=own)

    def idle(self, warm_up: Floats, places: Sequence[Ranks]) -> Floats:
        """(places,) seconds of idling that none of a place's ranks lacks."""
        return np.array([warm_up[list(ranks)].min() for ranks in places])

    def run(
        self,
        beside: NDArray[np.bool_],
        seconds: Floats,
        synchronised: bool,
        idle: Floats | float = 0.0,
        begin: Floats | float = 0.0,
    ) -> Floats:
        """(passes, places) when each place of an encoder ends its passes, `seconds` of the same shape, one after
        another, from `begin` on; clocks beside those that have any go on from there, less what their ranks would idle
        in any case.
        """
        begin = np.asarray(np.maximum(begin, np.where(beside, self.now, 0.0).max(axis=1)))
        if synchronised:
            begin = np.full_like(begin, begin.max())
            seconds = np.broadcast_to(seconds.max(axis=1)[:, None], seconds.shape)
        ended: Floats = begin + np.cumsum(seconds, axis=0)
        goes_on = np.where(seconds.any(axis=0), ended[-1] - idle, 0.0)
        self.now = np.maximum(self.now, np.where(beside, goes_on[:, None], 0.0).max(axis=0))
        return ended

    def end(self, llm: PipelineWork) -> float:
        """When the last backward of an encoder ends; those on ranks of their own begin when all have ended who read
        them.
        """
        more, waits, replicas = -llm.drain, 0.0, len(llm.replicas)
        for each, beside, readers in zip(self.encoders, self.beside, self.readers, strict=True):
            last = np.where(each.behind >= llm.count, each.backward, 0.0)
            read = np.where((last > 0.0)[:, :, None] & readers, self.now, 0.0).max(axis=(0, 2), initial=0.0)
            begin = np.where(beside, read[:, None], 0.0).max(axis=0, initial=0.0)
            self.now[replicas:] = np.maximum(self.now, begin)[replicas:]
            if each.synchronised:
                waits += float(last.max(axis=1, initial=0.0).sum())
                continue
            for ranks, seconds in zip(each.places, last.sum(axis=0).tolist(), strict=True):
                more[list(ranks)] += seconds
        ends = [self.now[clock] + max(0.0, more[rank]) for rank, clock in self.of_rank.items()]
        return float(max(ends)) + waits
