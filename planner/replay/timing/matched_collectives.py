"""Matches the collectives of several ranks, and puts their clocks right by them.

Operations match by order, among those with the same process group (or stream, where groups are not recorded), class
and name: over the whole capture where all ranks have as many, else within steps of the same name, else at the shift at
which their exits fit best. From what matched so far the clocks follow (`clock_fit`), and with those, operations that
are still unmatched match where they overlap. A collective's own seconds are those of the rank that was in it for the
shortest time: it arrived last.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from planner.errors import InputError
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.recording.recorded_names import is_communication, kernel_class
from planner.replay.timing.clock_fit import Clock, ClockFit, fit_clocks
from planner.replay.timing.graph_activities import CollectiveOps
from planner.units import MS, duration

LEAVE_TOGETHER = {"all-reduce", "reduce-scatter", "all-gather"}
MIN_OVERLAPPING_SHARE = 0.8  # share of the operations with a key that must overlap in time
MAX_CLOCK_DIFFERENCE = 1.0  # seconds, at most, between captures of ranks that nothing joins
MAX_EXIT_SPREAD = 1 * MS  # median, on clocks that were put right; two runs fit each other no better by chance

CollectiveKey = tuple[str, str, str]  # process group or stream, class, name
Occurrence = dict[int, int]  # graph → operation


class MatchedCollective(NamedTuple):
    """A collective with the waiting time of each rank."""

    key: CollectiveKey
    collective: CollectiveOps
    wait_seconds: dict[int, float]  # graph → seconds from its arrival to the last one


class MatchedRanks(NamedTuple):
    """Collectives of two ranks or more, and all captures on one clock."""

    collectives: list[MatchedCollective]
    begins: list[float]  # seconds on the common clock at which each capture begins; the first begins at 0
    clocks: list[Clock]
    residual: float  # median seconds by which ranks leave collectives apart
    notes: list[str]


def match_ranks(graphs: Sequence[ExecutionGraph]) -> MatchedRanks:
    """Match the collectives of all ranks. Raises InputError where captures are of different times."""
    if len(graphs) < 2:
        return MatchedRanks([], [0.0] * len(graphs), [], 0.0, [])
    matcher = RankMatcher(graphs)
    by_order = {key: matcher.by_order(key) for key in matcher.keys}
    fit = matcher.fit(by_order)
    by_time = {key: found or matcher.by_time(key, fit) for key, found in by_order.items()}
    fit = matcher.fit(by_time)
    require_same_time(graphs, matcher, by_time, fit)
    matched: list[MatchedCollective] = []
    notes = [*matcher.notes()]
    for key, occurrences in by_time.items():
        what = f"{key[1]} of {key[0]}"
        if not occurrences:
            if len(matcher.ranks(key)) > 1:
                counts = ", ".join(
                    f"{len(matcher.ops[g][key])} on rank {rank_of_graph(graphs, g)}" for g in matcher.ranks(key)
                )
                notes.append(f"not matched, since ranks have different numbers of them: {what} ({counts})")
            continue
        if sum(matcher.overlap(each, fit) for each in occurrences) < MIN_OVERLAPPING_SHARE * len(occurrences):
            notes.append(f"not matched, since they do not overlap in time: {what}")
            continue
        matched += [match_occurrence(graphs, key, each) for each in occurrences]
    if not matched:
        notes.append("no collective of the ranks matches: each is replayed by itself")
    begins = [fit.clocks[g].common(matcher.bases[g]) for g in range(len(graphs))]
    return MatchedRanks(matched, [each - min(begins) for each in begins], fit.clocks, fit.residual, notes)


class RankMatcher:
    """The communication of all ranks, on their own clocks; seconds since the first rank's capture began."""

    def __init__(self, graphs: Sequence[ExecutionGraph]) -> None:
        self.graphs = graphs
        self.bases = [graph.trace.base - graphs[0].trace.base for graph in graphs]
        self.ops = [collectives_by_key(graph) for graph in graphs]
        self.keys = sorted({key for keys in self.ops for key in keys})
        self.step_names = [tuple(step.name for step in graph.steps) for graph in graphs]

    def ranks(self, key: CollectiveKey) -> list[int]:
        return [g for g, keys in enumerate(self.ops) if key in keys]

    def exit(self, g: int, op: int) -> float:
        return self.bases[g] + self.graphs[g].trace.ops[op].end

    def by_order(self, key: CollectiveKey) -> list[Occurrence]:
        """Matches by order; none where that leaves a choice."""
        ranks = self.ranks(key)
        if len(ranks) < 2:
            return []
        same_steps = len({self.step_names[g] for g in ranks}) == 1
        counts = {len(self.ops[g][key]) for g in ranks}
        if len(counts) == 1 and same_steps:
            return occurrences({g: self.ops[g][key] for g in ranks})
        by_step = {g: ops_by_step(self.graphs[g], self.ops[g][key]) for g in ranks}
        found: list[Occurrence] = []
        for name in sorted(set.intersection(*({*each} for each in by_step.values())) - {""}):
            if len({len(by_step[g][name]) for g in ranks}) == 1:
                found += occurrences({g: by_step[g][name] for g in ranks})
        if found:
            return found
        return occurrences({g: self.ops[g][key] for g in ranks}) if len(counts) == 1 else self.by_shift(key, ranks)

    def by_shift(self, key: CollectiveKey, ranks: list[int]) -> list[Occurrence]:
        """Matches at the shift of each rank at which its exits fit those of the rank with the fewest best."""
        fewest = min(ranks, key=lambda g: (len(self.ops[g][key]), g))
        wanted = np.array([self.exit(fewest, op) for op in self.ops[fewest][key]])
        if len(wanted) < 3:
            return []
        chosen = {}
        for g in ranks:
            exits = np.array([self.exit(g, op) for op in self.ops[g][key]])
            shifts = range(len(exits) - len(wanted) + 1)
            spread = [float(np.ptp(exits[s : s + len(wanted)] - wanted)) for s in shifts]
            best = int(np.argmin(spread))
            if spread[best] > MAX_EXIT_SPREAD:
                return []
            chosen[g] = self.ops[g][key][best : best + len(wanted)]
        return occurrences(chosen)

    def by_time(self, key: CollectiveKey, fit: ClockFit) -> list[Occurrence]:
        """Operations of all ranks that leave nearest each other on the clocks as they are known."""
        ranks = self.ranks(key)
        if len(ranks) < 2 or any(fit.clocks[g].collectives == 0 for g in ranks[1:]):
            return []
        fewest = min(ranks, key=lambda g: (len(self.ops[g][key]), g))
        exits = {g: np.array([fit.clocks[g].common(self.exit(g, op)) for op in self.ops[g][key]]) for g in ranks}
        found = []
        for i, time in enumerate(exits[fewest].tolist()):
            nearest = {g: int(np.argmin(np.abs(exits[g] - time))) for g in ranks}
            if all(abs(exits[g][at] - time) <= MAX_EXIT_SPREAD for g, at in nearest.items()):
                found.append({g: self.ops[g][key][at] for g, at in {**nearest, fewest: i}.items()})
        return found

    def fit(self, matched: dict[CollectiveKey, list[Occurrence]]) -> ClockFit:
        """Clocks by collectives that all leave together, or by what there is; where nothing is, as they are."""
        for kinds in (LEAVE_TOGETHER, {key[1] for key in matched}):
            chosen = [each for key, found in matched.items() if key[1] in kinds for each in found]
            fit = fit_clocks(len(self.graphs), [{g: self.exit(g, op) for g, op in each.items()} for each in chosen])
            if all(clock.collectives for clock in fit.clocks[1:]):
                return fit
        unjoined = [
            clock._replace(offset=self.raw_offset(g)) if g and not clock.collectives else clock
            for g, clock in enumerate(fit.clocks)
        ]
        return fit._replace(clocks=unjoined)

    def raw_offset(self, g: int) -> float:
        """0 where the clock of a rank that nothing joins with others may be right; else that of its beginning."""
        firsts = [
            base + (graph.steps[0].begin.segment.end if graph.steps else 0.0)
            for base, graph in zip(self.bases, self.graphs, strict=True)
        ]
        return 0.0 if abs(firsts[g] - firsts[0]) <= MAX_CLOCK_DIFFERENCE else firsts[g] - firsts[0]

    def overlap(self, ops: Occurrence, fit: ClockFit) -> bool:
        """Whether the operations of an occurrence all overlap at some moment."""
        placed = [(fit.clocks[g], self.bases[g], self.graphs[g].trace.ops[op]) for g, op in ops.items()]
        latest = max(clock.common(base + op.start) for clock, base, op in placed)
        return latest <= min(clock.common(base + op.end) for clock, base, op in placed) + fit.residual

    def notes(self) -> Iterator[str]:
        if len({*self.step_names}) > 1:
            yield "the ranks recorded different steps: each is replayed, and the slowest rank of each step counts"


def occurrences(ops: dict[int, list[int]]) -> list[Occurrence]:
    """The n-th operations of all ranks."""
    return [dict(zip(ops, each, strict=True)) for each in zip(*ops.values(), strict=True)]


def ops_by_step(graph: ExecutionGraph, ops: Sequence[int]) -> dict[str, list[int]]:
    """Operations by the step in which they were launched; "": before all steps."""
    begins = [step.begin.segment.end for step in graph.steps]
    found: dict[str, list[int]] = {}
    launched = 0.0
    for op in ops:
        launch = graph.op_timings[op].launch
        launched = max(launched, launch.end) if launch else launched
        at = bisect_right(begins, launched + 1e-9) - 1
        found.setdefault(graph.steps[at].name if at >= 0 else "", []).append(op)
    return found


def require_same_time(
    graphs: Sequence[ExecutionGraph],
    matcher: RankMatcher,
    matched: dict[CollectiveKey, list[Occurrence]],
    fit: ClockFit,
) -> None:
    """Raises InputError where ranks do not leave together on any clock, so that captures are of different times."""
    together = [each for key, found in matched.items() if key[1] in LEAVE_TOGETHER for each in found]
    spreads = [fit.spread({g: matcher.exit(g, op) for g, op in each.items()}) for each in together]
    own = [min(graphs[g].op_timings[op].seconds for g, op in each.items()) for each in together]
    if len(spreads) < 3 or float(np.median(spreads)) <= MAX_EXIT_SPREAD + float(np.median(own)) / 2:
        return
    files = ", ".join(graph.trace.source for graph in graphs[:3]) + (", …" if len(graphs) > 3 else "")
    what = (
        f"collectives do not end together on any clocks, but {duration(float(np.median(spreads)))} apart: "
        f"{files} were recorded at different times, or of different jobs"
    )
    raise InputError(what, where="TRACE", fix="give traces of all ranks of one run, recorded in the same steps")


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
            where = "the host" if ops[i].kind == "collective" else where  # whichever thread does it
            found.setdefault((where, kind, ops[i].name), []).append(i)
    return found


def match_occurrence(graphs: Sequence[ExecutionGraph], key: CollectiveKey, ops: Occurrence) -> MatchedCollective:
    """The collective that operations make, one per rank."""
    durations = {g: graphs[g].op_timings[op].seconds for g, op in ops.items()}
    own_seconds = min(durations.values())
    waits = {g: seconds - own_seconds for g, seconds in durations.items()}
    return MatchedCollective(key, CollectiveOps(tuple(ops.items()), own_seconds), waits)
