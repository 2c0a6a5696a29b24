"""The critical path of a replay: the chain of causes that ends with its last step, and the operators on it."""

from bisect import bisect_right
from typing import NamedTuple

from planner.replay.recording.recorded_names import kernel_class
from planner.replay.recording.recorded_trace import EnclosingSpans, enclosing_spans
from planner.replay.timing.matched_collectives import rank_of_graph
from planner.replay.timing.timed_replay import Replay
from planner.simulate import NO_ACTIVITY


class PathLink(NamedTuple):
    """One activity of the path: a host segment or a device operation."""

    rank: int
    lane: str  # thread or stream
    kind: str  # "host", "launch", or the class of the operation
    name: str  # of the device operation; "" for the host
    enclosing: EnclosingSpans
    start: float
    end: float
    unseen: float = 0.0  # seconds of it that nothing explains

    @property
    def seconds(self) -> float:
        return self.end - self.start


class OperatorShare(NamedTuple):
    """What one operator contributes to the path by one class of work; the fields are keys of the JSON answer."""

    operator: str
    kind: str
    seconds: float
    times: int


class ActivityOrigin(NamedTuple):
    """The host segment or operation that an activity stands for; both −1: a marker or a launch delay."""

    graph: int
    segment: int = -1
    op: int = -1


def origin_of(replay: Replay, activity: int) -> ActivityOrigin:
    """The host segment or operation that an activity stands for."""
    activities = replay.activities
    if 0 <= activity - activities.first_collective < len(replay.matched.collectives):  # on the first of its ranks
        g, op = replay.matched.collectives[activity - activities.first_collective].collective.ops[0]
        return ActivityOrigin(g, op=op)
    g = bisect_right(activities.first_segments, activity) - 1
    if activity - activities.first_segments[g] < len(replay.graphs[g].segments):
        return ActivityOrigin(g, segment=activity - activities.first_segments[g])
    op = int(activities.op_numbers[g].searchsorted(activity))
    known = op < len(activities.op_numbers[g]) and activities.op_numbers[g][op] == activity
    return ActivityOrigin(g, op=op) if known else ActivityOrigin(0)


def find_critical_path(replay: Replay) -> list[PathLink]:
    """Links from the beginning of the first step to the end of the last one, on whichever rank that ends last."""
    ends = [(replay.boundary(g, graph.steps[-1].end), -g) for g, graph in enumerate(replay.graphs) if graph.steps]
    if not ends:
        return []
    g = -max(ends)[1]
    low = min(replay.boundary(each, graph.steps[0].begin) for each, graph in enumerate(replay.graphs))
    starts, stops, causes = replay.times
    last = replay.graphs[g].steps[-1].end
    numbers = replay.activities
    exits = [numbers.collective_exits.get((g, op), int(numbers.op_numbers[g][op])) for op in last.ops]
    activity = max((stops[each], each) for each in (numbers.first_segments[g] + last.segment.number, *exits))[1]
    chain: list[tuple[ActivityOrigin, float, float]] = []
    while activity != NO_ACTIVITY and stops[activity] > low:
        if stops[activity] > starts[activity]:
            times = (max(low, float(starts[activity])), float(stops[activity]))
            chain.append((origin_of(replay, activity), *times))
        activity = int(causes[activity])
    chain.reverse()
    return merge_host_links(links_of_chain(replay, chain))


def links_of_chain(replay: Replay, chain: list[tuple[ActivityOrigin, float, float]]) -> list[PathLink]:
    """The links of a chain, each with the operators that enclose it or its launch."""
    found: dict[int, list[tuple[int, EnclosingSpans]]] = {}
    for g, graph in enumerate(replay.graphs):
        mine = [i for i, (origin, _, _) in enumerate(chain) if origin.graph == g]
        moments = []
        for i in mine:
            origin = chain[i][0]
            call = graph.launching_calls[origin.op] if origin.op >= 0 else -1
            if origin.segment >= 0:
                segment = graph.segments[origin.segment]
                moments.append((segment.thread, segment.end - segment.seconds / 2))
            elif call >= 0:
                moments.append((graph.trace.calls[call].thread, graph.trace.calls[call].start))
            else:
                moments.append((-1, 0.0))
        found[g] = [*zip(mine, enclosing_spans(graph.trace.host, moments), strict=True)]
    within = {i: each for pairs in found.values() for i, each in pairs}
    return [link_of_origin(replay, origin, within[i], (start, end)) for i, (origin, start, end) in enumerate(chain)]


def link_of_origin(
    replay: Replay, origin: ActivityOrigin, within: EnclosingSpans, times: tuple[float, float]
) -> PathLink:
    graph, rank = replay.graphs[origin.graph], rank_of_graph(replay.graphs, origin.graph)
    if origin.op >= 0:
        op = graph.trace.ops[origin.op]
        kind, unseen = kernel_class(op.name, op.kind), graph.op_timings[origin.op].unseen
        lane = graph.trace.streams[op.stream]
        return PathLink(rank, lane, kind, op.name, within, *times, min(unseen, times[1] - times[0]))
    if origin.segment >= 0:
        segment = graph.segments[origin.segment]
        unseen = min(segment.unseen, times[1] - times[0])
        return PathLink(rank, graph.trace.threads[segment.thread], "host", "", within, *times, unseen)
    return PathLink(rank, "launch", "launch latency", "", within, *times)


def merge_host_links(links: list[PathLink]) -> list[PathLink]:
    """Merge adjacent host links in the same operator."""
    found: list[PathLink] = []
    for each in links:
        last = found[-1] if found else None
        if last and not each.name and last[:5] == each[:5] and last.end == each.start:
            found[-1] = last._replace(end=each.end, unseen=last.unseen + each.unseen)
        else:
            found.append(each)
    return found


def rank_operators(links: list[PathLink]) -> list[OperatorShare]:
    """Operators by their seconds on the path, the longest first."""
    seconds: dict[tuple[str, str], float] = {}
    counts: dict[tuple[str, str], int] = {}
    for each in links:
        key = (each.enclosing.operator, each.kind)
        seconds[key] = seconds.get(key, 0.0) + each.seconds
        counts[key] = counts.get(key, 0) + 1
    shares = [OperatorShare(*key, total, counts[key]) for key, total in seconds.items()]
    return sorted(shares, key=lambda share: (-share.seconds, share.operator, share.kind))
