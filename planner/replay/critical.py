"""The critical path of a replay: the chain of causes that ends with its last step, and the operators on it."""

from typing import NamedTuple

import numpy as np

from planner.replay.classes import kernel_class
from planner.replay.collectives import rank_of
from planner.replay.replayed import Replay
from planner.replay.stacks import Within, stacks
from planner.simulate.activities import NOBODY


class Link(NamedTuple):
    """One activity of the path: a host segment or a device operation."""

    rank: int
    where: str  # thread or stream
    kind: str  # "host", "launch", or the class of the operation
    name: str  # of the device operation; "" for the host
    within: Within
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Ranked(NamedTuple):
    """What one operator contributes to the path by one class of work; the fields are keys of the JSON answer."""

    operator: str
    kind: str
    seconds: float
    times: int


class Place(NamedTuple):
    """The host segment or operation that an activity stands for; both −1: a marker or a launch delay."""

    graph: int
    piece: int = -1
    op: int = -1


def place_of(replay: Replay, activity: int) -> Place:
    """The host segment or operation that an activity stands for."""
    activities = replay.wired
    if 0 <= activity - activities.meetings < len(replay.met):  # a collective is attributed to the first of its ranks
        g, op = replay.met[activity - activities.meetings].meeting.ops[0]
        return Place(g, op=op)
    for g, graph in enumerate(replay.graphs):
        if 0 <= activity - activities.pieces[g] < len(graph.pieces):
            return Place(g, piece=activity - activities.pieces[g])
        op = int(np.searchsorted(activities.ops[g], activity))
        if op < len(graph.work) and activities.ops[g][op] == activity:
            return Place(g, op=op)
    return Place(0)


def critical_path(replay: Replay) -> list[Link]:
    """Links from the beginning of the first step to the end of the last one, on whichever rank that ends last."""
    ends = [
        (replay.piece_end(g, graph.steps[-1].end.number), -g) for g, graph in enumerate(replay.graphs) if graph.steps
    ]
    if not ends:
        return []
    g = -max(ends)[1]
    low = min(replay.piece_end(each, graph.steps[0].begin.number) for each, graph in enumerate(replay.graphs))
    activity = replay.wired.pieces[g] + replay.graphs[g].steps[-1].end.number
    starts, stops, causes = replay.times
    chain: list[tuple[Place, float, float]] = []
    while activity != NOBODY and stops[activity] > low:
        if stops[activity] > starts[activity]:
            times = (max(low, float(starts[activity])), float(stops[activity]))
            chain.append((place_of(replay, activity), *times))
        activity = int(causes[activity])
    chain.reverse()
    return merged(named(replay, chain))


def named(replay: Replay, chain: list[tuple[Place, float, float]]) -> list[Link]:
    """The links of a chain, each with the operators that enclose it or its launch."""
    found: dict[int, list[tuple[int, Within]]] = {}
    for g, graph in enumerate(replay.graphs):
        mine = [i for i, (origin, _, _) in enumerate(chain) if origin.graph == g]
        moments = []
        for i in mine:
            origin = chain[i][0]
            call = graph.by[origin.op] if origin.op >= 0 else -1
            if origin.piece >= 0:
                segment = graph.pieces[origin.piece]
                moments.append((segment.thread, segment.end - segment.seconds / 2))
            elif call >= 0:
                moments.append((graph.trace.calls[call].thread, graph.trace.calls[call].start))
            else:
                moments.append((-1, 0.0))
        found[g] = [*zip(mine, stacks(graph.trace.host, moments), strict=True)]
    within = {i: each for pairs in found.values() for i, each in pairs}
    return [link(replay, origin, within[i], (start, end)) for i, (origin, start, end) in enumerate(chain)]


def link(replay: Replay, origin: Place, within: Within, times: tuple[float, float]) -> Link:
    graph, rank = replay.graphs[origin.graph], rank_of(replay.graphs, origin.graph)
    if origin.op >= 0:
        op = graph.trace.ops[origin.op]
        return Link(rank, graph.trace.streams[op.stream], kernel_class(op.name, op.kind), op.name, within, *times)
    if origin.piece >= 0:
        thread = graph.trace.threads[graph.pieces[origin.piece].thread]
        return Link(rank, thread, "host", "", within, *times)
    return Link(rank, "launch", "launch latency", "", within, *times)


def merged(links: list[Link]) -> list[Link]:
    """Merge adjacent host links in the same operator."""
    found: list[Link] = []
    for each in links:
        last = found[-1] if found else None
        if last and not each.name and last[:5] == each[:5] and last.end == each.start:
            found[-1] = last._replace(end=each.end)
        else:
            found.append(each)
    return found


def ranked(links: list[Link]) -> list[Ranked]:
    """Operators by their seconds on the path, the longest first."""
    seconds: dict[tuple[str, str], float] = {}
    counts: dict[tuple[str, str], int] = {}
    for each in links:
        key = (each.within.operator, each.kind)
        seconds[key] = seconds.get(key, 0.0) + each.seconds
        counts[key] = counts.get(key, 0) + 1
    shares = [Ranked(*key, total, counts[key]) for key, total in seconds.items()]
    return sorted(shares, key=lambda share: (-share.seconds, share.operator, share.kind))
