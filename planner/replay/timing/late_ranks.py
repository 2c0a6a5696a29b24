"""Ranks that make a job slower, and what makes them late.

Each rank is replayed by itself, with its collectives at their own seconds, as if it never waited for another: so long
a step takes where all ranks are like this one. An even job's ranks need the same; a slow rank needs longer, and by as
much the job is slower (its delay). It is slow where that is a share of the step, more than the scatter of work makes of
chance, and the others have waited for it. What they wait alone says less: who comes late by chance is waited for, too.

Its cause is what took it longer than the others (their median; one suffices) on the way to the collectives at which it
came last: its chain of activities, back from each arrival to the collective before. What took it longer elsewhere did
not delay anybody, and what is on the chain but took the others as long is nobody's fault. Kinds of kernels that are all
slower alike are its clock, operators that all are, its host. Where nothing of this comes to a part of the delay,
nothing in the trace says why.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.plan.task import LOADER
from planner.replay.dependencies.execution_graph import ExecutionGraph, with_op_timings
from planner.replay.recording.recorded_names import GARBAGE, is_communication, kernel_class
from planner.replay.recording.recorded_trace import BETWEEN_OPERATORS
from planner.replay.timing.host_time import HostTime
from planner.replay.timing.matched_collectives import MatchedCollective, rank_of_graph
from planner.replay.timing.step_breakdown import COPIES
from planner.replay.timing.timed_replay import Replay, replay_graphs
from planner.simulate import NO_ACTIVITY
from planner.units import US

SLOW_SHARE = 0.01  # of the steps, from which a rank's delay is called slow
CHANCE = 3.0  # times the scatter of work, of steps or of the other ranks, that chance may make of a delay
CLEARLY = 5 * US  # later than the others, from which a rank is the last at a collective
WAITED, SURELY_WAITED = 0.5, 0.9  # share of a slow rank's delay that others must have waited: with a cause, without
EXPLAINS = 0.25  # share of a rank's delay from which something is its cause
ONE_KIND = {"host": 0.6, "kernels": 0.95}  # share of an excess from which one kind alone is named
ALL_ALIKE = {"host": 0.5, "kernels": 0.9}  # share of the time that kinds have which are slower alike
ALIKE = (0.5, 2.0)  # times the usual excess, between which kinds are slower alike
NOTABLE = 0.03  # share of the time below which a kind says nothing of all

WorkKind = tuple[str, str]  # "host", "kernels" or "copies"; a span or a class
KindSeconds = dict[WorkKind, float]


class LateCause(NamedTuple):
    """What makes a rank late; the fields are keys of the JSON answer."""

    what: str  # data loader, garbage collection, host span, host, kernels, clock, copies; "": the trace does not say
    name: str  # the span, or the class of kernels
    seconds: float  # more than on the other ranks

    @property
    def text(self) -> str:
        """In words, without the seconds."""
        return {
            "": "nothing in this trace says why",
            "host": "its host: operators take longer there, all alike",
            "clock": "its clock: work of all kinds takes longer on its device, alike",
            "host span": f"on the host, `{self.name}`",
            "kernels": f"{self.name} kernels",
        }.get(self.what, f"its {self.what}")


class Straggler(NamedTuple):
    """How one rank delays the others; the fields are keys of the JSON answer."""

    rank: int
    last: int  # number of collectives at which it clearly arrived last
    of: int  # number of its collectives
    kept_waiting: float  # seconds that the others waited for it beyond what it waited for them, at least 0
    delay: float  # seconds by which its steps would be longer than the others' if none waited for another
    slow: bool  # whether that is much, and no chance
    cause: LateCause | None  # of a slow rank
    slower: tuple[tuple[str, float], ...]  # classes of work slower than on the other ranks, excess seconds


def find_stragglers(replay: Replay) -> list[Straggler]:
    """All ranks, the slowest first."""
    graphs, matched = replay.graphs, replay.matched
    work = [device_seconds(graph) for graph in graphs]
    alone, scatter = np.array(steps_alone(replay)), chance_scatter(graphs)
    host: list[HostTime] = []
    clear = max(CLEARLY, 2 * matched.residual)
    found = []
    for g in range(len(graphs)):
        mine = [each for each in matched.collectives if g in each.wait_seconds]
        late = [lateness(each, g) for each in mine]
        delay, slow = rank_delay(alone, scatter, g)
        slow = slow and sum(late) >= WAITED * delay
        cause = None
        if slow:
            host = host or [HostTime(each) for each in graphs]
            last = [each for each in mine if lateness(each, g) > clear]
            cause = find_cause(replay, g, last, work, host, delay)
            slow = bool(cause.what) or sum(late) >= SURELY_WAITED * delay
        found.append(
            Straggler(
                rank_of_graph(graphs, g),
                sum(each > clear for each in late),
                len(mine),
                max(0.0, sum(late)),
                delay,
                slow,
                cause if slow else None,
                slower_classes(work, g),
            )
        )
    return sorted(found, key=lambda each: (not each.slow, -each.delay, each.rank))


def steps_alone(replay: Replay) -> list[list[float]]:
    """Seconds of each step of each rank if it never waited for another; of ranks with other steps, their mean."""
    own = {member: each.collective.seconds for each in replay.matched.collectives for member in each.collective.ops}
    found = []
    for g, graph in enumerate(replay.graphs):
        alone = with_op_timings(
            graph,
            lambda i, work, g=g: work._replace(seconds=own.get((g, i), work.seconds)),  # type: ignore[misc]
        )
        found.append([step.replayed for step in replay_graphs([alone]).steps])
    if len({*map(len, found)}) > 1:
        return [[float(np.mean(each))] for each in found]
    return found


def rank_delay(alone: NDArray[np.float64], scatter: float, g: int) -> tuple[float, bool]:
    """Seconds by which a rank's steps are longer than the others', and whether it is slow; `alone`: (ranks, steps)."""
    others = np.delete(alone, g, axis=0)
    usual = float(np.median(others, axis=0).sum())
    delay = float(alone[g].sum()) - usual
    by_rank = others.sum(axis=1)
    if alone.shape[1] == 1 and len(others) > 2:
        scatter = float(np.median(np.abs(by_rank - np.median(by_rank)))) * 1.48
    return max(0.0, delay), delay >= SLOW_SHARE * usual and delay > CHANCE * scatter


def chance_scatter(graphs: Sequence[ExecutionGraph]) -> float:
    """Seconds by which ranks differ by chance: how much their work varies beyond what is common to a step or rank."""
    works = [work_by_step(graph) for graph in graphs]
    if len({each.shape for each in works}) > 1 or works[0].shape[1] < 2:
        return 0.0
    work = np.array(works)  # (ranks, 2, steps)
    ranks, _, steps = work.shape
    left = work - work.mean(axis=2, keepdims=True) - work.mean(axis=0) + work.mean(axis=(0, 2))[:, None]
    usual = np.median(np.abs(left), axis=(0, 2)) * 1.48 * (ranks * steps / ((ranks - 1) * (steps - 1))) ** 0.5
    return float(np.sqrt(2 * steps * (usual**2).sum()))


def work_by_step(graph: ExecutionGraph) -> NDArray[np.float64]:
    """Seconds of work of the device, without communication, and of the host in each step; (2, steps)."""
    begins = [step.begin.segment.end for step in graph.steps]
    found = np.zeros((2, len(begins)))
    lasts: list[list[int]] = [[] for _ in graph.trace.streams]  # the last operation before each step
    for step in graph.steps:
        before = {graph.trace.ops[op].stream: op for op in step.begin.ops}
        for stream, ops in enumerate(lasts):
            ops.append(before.get(stream, -1))
    for i, (op, work) in enumerate(zip(graph.trace.ops, graph.op_timings, strict=True)):
        at = bisect_left(lasts[op.stream], i) - 1
        if at >= 0 and work_kind(op.name, op.kind):
            found[0, at] += work.seconds + work.lead + (work.unseen if work.launch else 0.0)
    for segment in graph.segments:
        at = bisect_right(begins, segment.end - 1e-9) - 1
        if at >= 0:
            found[1, at] += segment.seconds + segment.unseen
    return found


def lateness(each: MatchedCollective, g: int) -> float:
    """Seconds by which a rank comes later to a collective than the others."""
    return median(wait for other, wait in each.wait_seconds.items() if other != g) - each.wait_seconds[g]


def device_seconds(graph: ExecutionGraph) -> KindSeconds:
    """Seconds of a rank's device work by class, without communication."""
    seconds: KindSeconds = {}
    for op, work in zip(graph.trace.ops, graph.op_timings, strict=True):
        kind = work_kind(op.name, op.kind)
        if kind:
            seconds[kind] = seconds.get(kind, 0.0) + work.seconds
    return seconds


def work_kind(name: str, kind: str) -> WorkKind | None:
    """Of a device operation; None of communication."""
    found = kernel_class(name, kind)
    return None if is_communication(found) else ("copies" if found in COPIES else "kernels", found)


def slower_classes(work: Sequence[KindSeconds], g: int) -> tuple[tuple[str, float], ...]:
    """Up to three classes of work that take a rank over 5 % longer than the others, with the excess seconds."""
    excess = excess_seconds(work, g)
    more = [(kind[1], seconds) for kind, seconds in excess.items() if seconds > 0.05 * (work[g][kind] - seconds)]
    return tuple(sorted(more, key=lambda pair: (-pair[1], pair[0]))[:3])


def excess_seconds(kinds: Sequence[KindSeconds], g: int) -> KindSeconds:
    """By how much each kind takes one rank longer than the others."""
    return (
        {
            kind: seconds - median(each.get(kind, 0.0) for other, each in enumerate(kinds) if other != g)
            for kind, seconds in kinds[g].items()
        }
        if len(kinds) > 1
        else {}
    )


def find_cause(
    replay: Replay,
    g: int,
    late: Sequence[MatchedCollective],
    work: Sequence[KindSeconds],
    host: Sequence[HostTime],
    delay: float,
) -> LateCause:
    """What makes a rank late that the others waited for."""
    chain: KindSeconds = {}
    for kind, seconds in chain_seconds(replay, g, late, host[g]):
        chain[kind] = chain.get(kind, 0.0) + seconds
    everything: list[KindSeconds] = [{**mine, **spans.seconds} for mine, spans in zip(work, host, strict=True)]
    excess = excess_seconds(everything, g)
    effect = {kind: min(excess[kind], seconds) for kind, seconds in chain.items() if excess.get(kind, 0.0) > 0}
    return named_cause(effect, everything[g], excess, delay)


def named_cause(effect: KindSeconds, own: KindSeconds, excess: KindSeconds, delay: float) -> LateCause:
    """What makes a rank late, of the seconds of each kind of its own work, what of them is more than the others', and
    what of that takes effect.
    """
    candidates: list[LateCause] = []
    for sort, all_alike, one in (("host", "host", "host span"), ("kernels", "clock", "kernels"), ("copies", "", "")):
        mine = {kind: seconds for kind, seconds in effect.items() if kind[0] == sort}
        whole = [*({LOADER, GARBAGE} & {name for _, name in mine})] if sort == "host" else []
        candidates += [LateCause(name, "", mine.pop((sort, name))) for name in sorted(whole)]
        total = sum(mine.values())
        if not mine:
            continue
        kind, most = max(mine.items(), key=lambda pair: (pair[1], pair[0]))
        usual = {k: own[k] - excess[k] for k in own if k[0] == sort}
        if sort == "copies":
            candidates.append(LateCause("copies", kind[1], total))
        elif slower_alike(usual, excess, ALL_ALIKE[sort]) and most < ONE_KIND[sort] * total:
            candidates.append(LateCause(all_alike, "", total))
        else:
            candidates.append(LateCause(one, kind[1], most))
    best = max(candidates, key=lambda each: each.seconds, default=None)
    return best if best and best.seconds >= EXPLAINS * delay else LateCause("", "", 0.0)


def slower_alike(usual: KindSeconds, excess: KindSeconds, share: float) -> bool:
    """Whether notable kinds, two at least and with that share of the time, take about the same factor longer."""
    kinds = [kind for kind in usual if kind[1] not in (LOADER, GARBAGE, BETWEEN_OPERATORS)]
    total = sum(usual[kind] for kind in kinds)
    notable = [kind for kind in kinds if usual[kind] >= NOTABLE * total]
    more = sum(excess[kind] for kind in notable) / (sum(usual[kind] for kind in notable) or 1.0)
    alike = [kind for kind in notable if ALIKE[0] * more <= excess[kind] / usual[kind] <= ALIKE[1] * more]
    return more > 0.01 and len(alike) > 1 and sum(usual[kind] for kind in alike) >= share * total


def chain_seconds(
    replay: Replay, g: int, late: Sequence[MatchedCollective], host: HostTime
) -> Iterator[tuple[WorkKind, float]]:
    """The activities of a rank on the way to its late arrivals, each once, by kind."""
    graph, activities, causes = replay.graphs[g], replay.activities, replay.times.causes
    numbers = activities.op_numbers[g]
    first = activities.first_segments[g]
    collectives = range(activities.first_collective, activities.first_collective + len(replay.matched.collectives))
    seen: set[int] = set()
    for each in late:
        activity = int(numbers[dict(each.collective.ops)[g]])
        while activity != NO_ACTIVITY and activity not in seen and activity not in collectives:
            seen.add(activity)
            if first <= activity < first + len(graph.segments):
                segment = graph.segments[activity - first]
                for name, seconds in host.within(
                    segment.thread, segment.end - segment.seconds - segment.unseen, segment.end
                ):
                    yield ("host", name), seconds
            else:
                op = int(np.searchsorted(numbers, activity))
                if op < len(numbers) and numbers[op] == activity:
                    kind = work_kind(graph.trace.ops[op].name, graph.trace.ops[op].kind)
                    if kind:
                        yield kind, graph.op_timings[op].seconds
            activity = int(causes[activity])
