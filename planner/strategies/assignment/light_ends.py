"""Micro-batches that read little of encoders at both ends of a step.

A pipeline waits for what its first micro-batch reads, while no rank has anything of the LLM to do, and encoders apart
go on with what the last one read when all others have ended (DistTrain reorders micro-batches for this, arXiv
2408.04275). The two that read least come first and last, and samples are exchanged between these and the others until
they read no less, as long as no micro-batch takes longer than the longest did.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from planner.strategies.assignment.module_items import ReplicaItems

Seconds = Mapping[int, float]  # by sample


def with_light_ends(replicas: ReplicaItems, seconds: Seconds, reading: Seconds) -> ReplicaItems:
    """The samples of each replica in other micro-batches. `seconds`: of the LLM; `reading`: of what a sample reads."""
    return [light_ends(micro_batches, seconds, reading) for micro_batches in replicas]


def light_ends(micro_batches: Sequence[tuple[int, ...]], seconds: Seconds, reading: Seconds) -> list[tuple[int, ...]]:
    """The samples of one replica in other micro-batches; empty ones stay last."""
    some, empty = [each for each in micro_batches if each], [each for each in micro_batches if not each]
    if len(some) < 2:
        return [*some, *empty]
    most = max(total(each, seconds) for each in some)
    rising = sorted(range(len(some)), key=lambda number: (total(some[number], reading), number))
    first, last = [*some[rising[0]]], [*some[rising[1]]]
    between = [[*some[number]] for number in sorted(rising[2:])]
    for end in (first, last) if between else (first,):
        lighten(end, between or [last], most, (seconds, reading))
    return [tuple(sorted(each, key=lambda item: (-seconds[item], item))) for each in (first, *between, last)] + empty


def lighten(end: list[int], others: Sequence[list[int]], most: float, known: tuple[Seconds, Seconds]) -> None:
    """Exchange samples of a micro-batch, those that read most first, with what reads least in others, none of which
    then takes more than `most` seconds.
    """
    seconds, reading = known
    flat = [(number, place) for number, other in enumerate(others) for place in range(len(other))]
    for at in sorted(range(len(end)), key=lambda at: (-reading[end[at]], at)):
        own, room = end[at], most - total(end, seconds)
        there = [others[number][place] for number, place in flat]
        rooms = np.array([most - total(other, seconds) for other in others])
        longer = np.array([seconds[sample] - seconds[own] for sample in there])
        able = (longer <= room) & (-longer <= rooms[[number for number, _ in flat]])
        read = np.where(able, [reading[sample] for sample in there], np.inf)
        best = int(read.argmin())
        if read[best] < reading[own]:
            number, place = flat[best]
            end[at], others[number][place] = others[number][place], own


def total(micro_batch: Sequence[int], seconds: Seconds) -> float:
    """The seconds of all its samples."""
    return sum(seconds[sample] for sample in micro_batch)
