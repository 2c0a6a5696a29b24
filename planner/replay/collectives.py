"""The collectives of several ranks: which operations are one, and what it takes from its last arrival.

Operations match by order, among those of one process group (or one stream, where groups are not said), kind and name.
A collective's own seconds are those of the rank that was in it shortest: it arrived last. So no clock has to be right;
but where clocks agree, operations that do not touch in time are not taken for one.
"""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from planner.replay.classes import is_communication, kernel_class
from planner.replay.graph import Graph
from planner.replay.wired import Meeting

SAME_CLOCK = 1.0  # seconds between the first steps of ranks, at most, for clocks that are taken to agree
TOUCH = 0.8  # of the operations of a key, that must overlap in time

Key = tuple[str, str, str]


class Met(NamedTuple):
    """A collective of some ranks."""

    key: Key
    meeting: Meeting
    waits: dict[int, float]  # graph → how long it was there before the last one


def offsets(graphs: Sequence[Graph]) -> tuple[list[float], bool]:
    """When each capture begins on one clock, and whether there is one."""
    firsts = [graph.trace.base + graph.steps[0].begin.end for graph in graphs if graph.steps]
    if len(firsts) < len(graphs) or max(firsts) - min(firsts) > SAME_CLOCK:
        return [0.0] * len(graphs), False
    first = min(graph.trace.base for graph in graphs)
    return [graph.trace.base - first for graph in graphs], True


def collectives(graphs: Sequence[Graph]) -> tuple[list[Met], list[str]]:
    """Those of two ranks or more; and what could not be matched."""
    begins, agree = offsets(graphs)
    by_rank = [keyed(graph) for graph in graphs]
    met: list[Met] = []
    notes = [] if agree else ["the clocks of the ranks disagree: collectives are matched by their order alone"]
    if len({tuple(step.name for step in graph.steps) for graph in graphs}) > 1:
        notes.append("the ranks recorded different steps: each is replayed, and the slowest rank of each step counts")
    for key in sorted({key for keys in by_rank for key in keys}):
        ranks = [g for g, keys in enumerate(by_rank) if key in keys]
        if len(ranks) < 2:
            continue
        what = f"{key[1]} of {key[0]}"
        if len({len(by_rank[g][key]) for g in ranks}) > 1:
            counts = ", ".join(f"{len(by_rank[g][key])} on rank {rank_of(graphs, g)}" for g in ranks)
            notes.append(f"not matched, since ranks have different numbers of them: {what} ({counts})")
            continue
        rows = [*zip(*(by_rank[g][key] for g in ranks), strict=True)]
        if agree and sum(touch(graphs, ranks, row, begins) for row in rows) < TOUCH * len(rows):
            notes.append(f"not matched, since they do not overlap in time: {what}")
            continue
        met += [one(graphs, key, ranks, row) for row in rows]
    if not met:
        notes.append("no collective of the ranks matches: each is replayed as if it were alone")
    return met, notes


def rank_of(graphs: Sequence[Graph], g: int) -> int:
    """The rank that a graph is of; its place, where the trace does not say."""
    rank = graphs[g].trace.rank
    return g if rank is None else rank


def keyed(graph: Graph) -> dict[Key, list[int]]:
    """The communication of a rank, in order of its beginning."""
    found: dict[Key, list[int]] = {}
    ops = graph.trace.ops
    for i in sorted(range(len(ops)), key=lambda i: (ops[i].start, i)):
        kind = kernel_class(ops[i].name, ops[i].kind)
        if is_communication(kind):
            where = f"group {ops[i].group}" if ops[i].group else graph.trace.streams[ops[i].stream]
            found.setdefault((where, kind, ops[i].name), []).append(i)
    return found


def touch(graphs: Sequence[Graph], ranks: Sequence[int], row: Sequence[int], begins: Sequence[float]) -> bool:
    ops = [(graphs[g].trace.ops[op], begins[g]) for g, op in zip(ranks, row, strict=True)]
    return max(op.start + begin for op, begin in ops) <= min(op.end + begin for op, begin in ops)


def one(graphs: Sequence[Graph], key: Key, ranks: Sequence[int], row: Sequence[int]) -> Met:
    lasted = {g: graphs[g].work[op].seconds for g, op in zip(ranks, row, strict=True)}
    own = min(lasted.values())
    pairs = tuple(zip(ranks, row, strict=True))
    return Met(key, Meeting(pairs, own), {g: seconds - own for g, seconds in lasted.items()})


class Straggler(NamedTuple):
    """How one rank keeps the others waiting."""

    rank: int
    last: int  # collectives that it was the last to come to
    of: int
    kept_waiting: float  # seconds that the others waited for it, in the median, summed over those
    slower: tuple[tuple[str, float], ...]  # kinds of work that take it longer than the median rank, seconds more


def stragglers(graphs: Sequence[Graph], met: Sequence[Met]) -> list[Straggler]:
    """Ranks by how long they are waited for."""
    kinds = [by_kind(graph) for graph in graphs]
    found = []
    for g in range(len(graphs)):
        mine = [each for each in met if g in each.waits]
        last = [each for each in mine if each.waits[g] == 0.0]
        kept = sum(median(wait for other, wait in each.waits.items() if other != g) for each in last)
        found.append(Straggler(rank_of(graphs, g), len(last), len(mine), kept, slower(kinds, g)))
    return sorted(found, key=lambda each: (-each.kept_waiting, each.rank))


def by_kind(graph: Graph) -> dict[str, float]:
    """Seconds of a rank's own work, by kind."""
    seconds: dict[str, float] = {}
    for op in graph.trace.ops:
        kind = kernel_class(op.name, op.kind)
        if not is_communication(kind):
            seconds[kind] = seconds.get(kind, 0.0) + op.end - op.start
    return seconds


def slower(kinds: Sequence[dict[str, float]], g: int) -> tuple[tuple[str, float], ...]:
    """The kinds of work that take a rank at least 5 % longer than the median rank, the largest first."""
    usual = {kind: median(each.get(kind, 0.0) for each in kinds) for kind in kinds[g]}
    more = [(kind, seconds - usual[kind]) for kind, seconds in kinds[g].items() if seconds > 1.05 * usual[kind]]
    return tuple(sorted(more, key=lambda pair: (-pair[1], pair[0]))[:3])
