"""Which rank the others waited for in collectives of a recorded job, and which of its work was slower than usual."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.recording.kernel_classes import is_communication, kernel_class
from planner.replay.timing.matched_collectives import MatchedCollective, rank_of_graph


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
