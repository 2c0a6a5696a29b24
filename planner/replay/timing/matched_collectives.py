"""Matches the collectives of several ranks, and finds stragglers: ranks that the others waited for, and the work of
theirs that was slower than usual.

Operations match by order, among those with the same process group (or stream, where groups are not recorded), class and
name. A collective's own seconds are those of the rank that was in it for the shortest time: it arrived last. So clocks
need not agree; but where they do, operations that do not overlap in time are not matched.
"""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.recording.recorded_names import is_communication, kernel_class
from planner.replay.timing.graph_activities import CollectiveOps

MAX_CLOCK_DIFFERENCE = 1.0  # seconds, at most, between the first steps of ranks whose clocks are taken to agree
MIN_OVERLAPPING_SHARE = 0.8  # share of the operations with a key that must overlap in time

CollectiveKey = tuple[str, str, str]  # process group or stream, class, name


class MatchedCollective(NamedTuple):
    """A collective with the waiting time of each rank."""

    key: CollectiveKey
    collective: CollectiveOps
    wait_seconds: dict[int, float]  # graph → seconds from its arrival to the last one


def capture_offsets(graphs: Sequence[ExecutionGraph]) -> tuple[list[float], bool]:
    """Start of each capture in seconds on a common clock (0 where clocks disagree), and whether they agree."""
    firsts = [graph.trace.base + graph.steps[0].begin.end for graph in graphs if graph.steps]
    if len(firsts) < len(graphs) or max(firsts) - min(firsts) > MAX_CLOCK_DIFFERENCE:
        return [0.0] * len(graphs), False
    first = min(graph.trace.base for graph in graphs)
    return [graph.trace.base - first for graph in graphs], True


def match_collectives(graphs: Sequence[ExecutionGraph]) -> tuple[list[MatchedCollective], list[str]]:
    """Collectives of two ranks or more, and notes on what could not be matched."""
    begins, agree = capture_offsets(graphs)
    by_rank = [collectives_by_key(graph) for graph in graphs]
    matched: list[MatchedCollective] = []
    notes = [] if agree else ["the clocks of the ranks disagree: collectives are matched by their order alone"]
    if len({tuple(step.name for step in graph.steps) for graph in graphs}) > 1:
        notes.append("the ranks recorded different steps: each is replayed, and the slowest rank of each step counts")
    for key in sorted({key for keys in by_rank for key in keys}):
        ranks = [g for g, keys in enumerate(by_rank) if key in keys]
        if len(ranks) < 2:
            continue
        what = f"{key[1]} of {key[0]}"
        if len({len(by_rank[g][key]) for g in ranks}) > 1:
            counts = ", ".join(f"{len(by_rank[g][key])} on rank {rank_of_graph(graphs, g)}" for g in ranks)
            notes.append(f"not matched, since ranks have different numbers of them: {what} ({counts})")
            continue
        occurrences = [*zip(*(by_rank[g][key] for g in ranks), strict=True)]
        if agree and sum(
            overlap_in_time(graphs, ranks, ops, begins) for ops in occurrences
        ) < MIN_OVERLAPPING_SHARE * len(occurrences):
            notes.append(f"not matched, since they do not overlap in time: {what}")
            continue
        matched += [match_occurrence(graphs, key, ranks, ops) for ops in occurrences]
    if not matched:
        notes.append("no collective of the ranks matches: each is replayed by itself")
    return matched, notes


def rank_of_graph(graphs: Sequence[ExecutionGraph], g: int) -> int:
    """The rank of a graph; its index where the trace does not record it."""
    rank = graphs[g].trace.rank
    return g if rank is None else rank


def collectives_by_key(graph: ExecutionGraph) -> dict[CollectiveKey, list[int]]:
    """Communication operations of a rank by key, each in order of their start."""
    found: dict[CollectiveKey, list[int]] = {}
    ops = graph.trace.ops
    for i in sorted(range(len(ops)), key=lambda i: (ops[i].start, i)):
        kind = kernel_class(ops[i].name, ops[i].kind)
        if is_communication(kind):
            where = f"group {ops[i].group}" if ops[i].group else graph.trace.streams[ops[i].stream]
            found.setdefault((where, kind, ops[i].name), []).append(i)
    return found


def overlap_in_time(
    graphs: Sequence[ExecutionGraph], ranks: Sequence[int], ops: Sequence[int], begins: Sequence[float]
) -> bool:
    """Whether the operations of an occurrence, one per rank, all overlap at some moment."""
    placed = [(graphs[g].trace.ops[op], begins[g]) for g, op in zip(ranks, ops, strict=True)]
    return max(op.start + begin for op, begin in placed) <= min(op.end + begin for op, begin in placed)


def match_occurrence(
    graphs: Sequence[ExecutionGraph], key: CollectiveKey, ranks: Sequence[int], ops: Sequence[int]
) -> MatchedCollective:
    """The collective that operations make, one per rank."""
    durations = {g: graphs[g].op_timings[op].seconds for g, op in zip(ranks, ops, strict=True)}
    own_seconds = min(durations.values())
    members = tuple(zip(ranks, ops, strict=True))
    waits = {g: seconds - own_seconds for g, seconds in durations.items()}
    return MatchedCollective(key, CollectiveOps(members, own_seconds), waits)


class Straggler(NamedTuple):
    """How one rank delays the others; the fields are keys of the JSON answer."""

    rank: int
    last: int  # number of collectives at which it arrived last
    of: int  # number of its collectives
    kept_waiting: float  # median seconds that the others waited for it, summed over those at which it was last
    slower: tuple[tuple[str, float], ...]  # classes of work slower than on the median rank, excess seconds


def find_stragglers(graphs: Sequence[ExecutionGraph], matched: Sequence[MatchedCollective]) -> list[Straggler]:
    """All ranks, those first for which the others waited longest."""
    kinds = [compute_seconds_by_class(graph) for graph in graphs]
    found = []
    for g in range(len(graphs)):
        mine = [each for each in matched if g in each.wait_seconds]
        last = [each for each in mine if each.wait_seconds[g] == 0.0]
        waited = sum(median(wait for other, wait in each.wait_seconds.items() if other != g) for each in last)
        found.append(Straggler(rank_of_graph(graphs, g), len(last), len(mine), waited, slower_classes(kinds, g)))
    return sorted(found, key=lambda each: (-each.kept_waiting, each.rank))


def compute_seconds_by_class(graph: ExecutionGraph) -> dict[str, float]:
    """Seconds of a rank's device work by class, without communication."""
    seconds: dict[str, float] = {}
    for op in graph.trace.ops:
        kind = kernel_class(op.name, op.kind)
        if not is_communication(kind):
            seconds[kind] = seconds.get(kind, 0.0) + op.end - op.start
    return seconds


def slower_classes(kinds: Sequence[dict[str, float]], g: int) -> tuple[tuple[str, float], ...]:
    """Up to three classes of work that take a rank over 5 % longer than the median rank, with the excess seconds."""
    usual = {kind: median(each.get(kind, 0.0) for each in kinds) for kind in kinds[g]}
    more = [(kind, seconds - usual[kind]) for kind, seconds in kinds[g].items() if seconds > 1.05 * usual[kind]]
    return tuple(sorted(more, key=lambda pair: (-pair[1], pair[0]))[:3])
