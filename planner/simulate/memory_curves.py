"""Memory in use on every rank over a timeline: model and optimizer states all the time, activations from a forward
to its backward, and recomputed activations while a backward runs.

Where a backward is split, the input gradient (I) frees what the weight gradient (W) does not need; the share that W
needs is `KEPT_FOR_WEIGHTS`.

A frozen encoder frees a forward's activations at its end, and holds its outputs until the last of its readers begins
to take them. Who reads holds them from there, and lets go of a part with each of its forwards that read. So the further
such an encoder runs ahead, the more waits where it computed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.plan.mesh.identical_groups import EquivalentRanks
from planner.plan.schedules.zero_bubble import KEPT_FOR_WEIGHTS
from planner.plan.task import Phase, Task
from planner.plan.tasks.ragged_array import IntArray, ragged
from planner.plan.tasks.task_table import TaskTable, numbered
from planner.plan.tokens.resharding import is_between_modules
from planner.simulate.timeline import Timeline

Curve = tuple[tuple[float, float], ...]  # (seconds, bytes in use from then on)
Floats = NDArray[np.float64]
PASS_ENDS: tuple[Phase, ...] = ("B", "I", "W")


@dataclass(frozen=True, slots=True)
class TaskSpans:
    """When the tasks of a step ran, place by place, on how many ranks; some of which others represent."""

    starts: Floats  # (n,) seconds
    ends: Floats
    step_seconds: float
    ranks: int
    representative_rank: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, timeline: Timeline) -> "TaskSpans":
        """Those of a timeline."""
        starts, ends = np.array([(event.start, event.end) for event in timeline.events]).reshape(-1, 2).T
        return cls(starts, ends, timeline.step_seconds, timeline.ranks, timeline.representative_rank)

    @classmethod
    def one_by_one(cls, count: int, ranks: int, representative_rank: Mapping[int, int]) -> "TaskSpans":
        """Those of so many tasks one after another, each of a second."""
        each = np.arange(count + 1.0)
        return cls(each[:-1], each[1:], float(count), ranks, representative_rank)


class OutputBytes(NamedTuple):
    """Bytes of the outputs that a send carries, on each rank that sends and on each that reads."""

    sent: float
    read: float


class HeldChange(NamedTuple):
    """From `seconds` on, a rank holds `amount` bytes more."""

    rank: int
    seconds: float
    amount: float


@dataclass(frozen=True, eq=False)
class MemoryCurves:
    """Bytes in use over time, one curve per rank; equivalent ranks share one object."""

    points: tuple[Floats, ...]  # of each rank, (changes, 2): seconds, and bytes in use from then on

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryCurves) and self.curves == other.curves

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """The curves as numbers."""
        found = {id(each): tuple((at, held) for at, held in each.tolist()) for each in self.points}
        return tuple(found[id(each)] for each in self.points)

    @cached_property
    def peaks(self) -> tuple[float, ...]:
        """Peak bytes of each rank."""
        found = {id(each): float(each[:, 1].max()) for each in {id(each): each for each in self.points}.values()}
        return tuple(found[id(each)] for each in self.points)


@dataclass(frozen=True, slots=True)
class FurtherBytes:
    """What ranks hold besides. `update`: a rank while the optimizer runs, which may be negative; `outputs`: of a send
    between modules, while it waits for its readers.
    """

    update: Callable[[int], float] = lambda _: 0.0
    outputs: Callable[[Task], OutputBytes] | None = None


def simulate_memory(
    spans: TaskSpans,
    tasks: TaskTable,
    kept: Floats,
    state_bytes: Callable[[int], float],
    recomputed: Floats | None = None,
    further: FurtherBytes | None = None,
) -> MemoryCurves:
    """Memory curves of a simulated step.

    `kept`: what each task, if it is a forward, keeps on each of its ranks for the backward, (n,); `state_bytes`: what a
    rank holds throughout; `recomputed`: what a backward holds in addition on each of its ranks while it runs, (n,).

    A forward without a backward keeps its activations to the end of the step; those of layers that have no backward at
    all are freed when the forward ends.
    """
    further = further or FurtherBytes()
    alike = EquivalentRanks(kind.ranks for kind in tasks.kinds if kind.phase in ("F", "B", "I"))
    changes = activation_changes(spans, tasks, kept, recomputed, alike)
    own: dict[int, list[tuple[float, float]]] = defaultdict(list)  # of a kind, devices and readers may differ
    for place in tasks.where(lambda kind: kind.phase == "update").tolist():
        for rank in tasks.kinds[tasks.kind[place]].ranks:
            extra = further.update(rank)
            own[rank] += [(spans.starts[place], extra), (spans.ends[place], -extra)] if extra else []
    for held in waiting_outputs(spans, tasks, further.outputs) if further.outputs else ():
        own[held.rank].append((held.seconds, held.amount))
    keys = []
    for rank in range(spans.ranks):
        of = spans.representative_rank.get(rank, rank)
        keys.append((state_bytes(rank), alike.representative.get(of), tuple(own.get(of, ()))))
    curves = {
        (base, of, more): running_curve(base, np.concatenate([changes[of], np.array(more).reshape(-1, 2)]))
        for base, of, more in dict.fromkeys(keys)
    }
    return MemoryCurves(tuple(curves[key] for key in keys))


def activation_changes(
    spans: TaskSpans, tasks: TaskTable, kept: Floats, recomputed: Floats | None, alike: EquivalentRanks
) -> dict[int | None, Floats]:
    """What one rank of each kind holds more or less of activations, and when, (changes, 2)."""
    forwards = np.flatnonzero(tasks.column(lambda kind: kind.phase == "F", np.bool_) & (kept != 0))
    releases, own = release_times(spans, tasks, forwards), kept[forwards]
    places, seconds = [forwards] * 3, [spans.starts[forwards], *(when for when, _ in releases)]
    amounts = [own, *(-share * own for _, share in releases)]
    if recomputed is not None:
        backwards = np.flatnonzero(tasks.column(lambda kind: kind.phase in ("B", "I"), np.bool_) & (recomputed != 0))
        places += [backwards, backwards]
        seconds += [spans.starts[backwards], spans.ends[backwards]]
        amounts += [recomputed[backwards], -recomputed[backwards]]
    on_ranks = ragged([alike.among(kind.ranks) if kind.phase in ("F", "B", "I") else () for kind in tasks.kinds])
    each = on_ranks.gathered(tasks.kind[np.concatenate(places)])
    changes = np.stack([np.concatenate(seconds), np.concatenate(amounts)], axis=1)[each.owners()]
    changed, rank_of = changes[:, 1] != 0, each.values
    changes, rank_of = changes[changed], rank_of[changed]
    changes = changes[np.argsort(rank_of, kind="stable")]
    ranks, count = np.unique(rank_of, return_counts=True)
    found: dict[int | None, Floats] = defaultdict(lambda: np.zeros((0, 2)))
    found.update(zip(ranks.tolist(), np.split(changes, np.cumsum(count)[:-1]), strict=False))
    return found


def release_times(spans: TaskSpans, tasks: TaskTable, forwards: IntArray) -> list[tuple[Floats, Floats]]:
    """When the activations of forwards are freed, and what share of them, twice: all at the end of the backward, or in
    parts at the ends of I and W.
    """
    by_phase = {phase: ends_of_passes(spans, tasks, forwards, phase) for phase in PASS_ENDS}
    done = {(kind.module, layer) for kind in used_kinds(tasks) if kind.phase in PASS_ENDS for layer in kind.layers}
    returned = tasks.column(lambda kind: (kind.module, kind.layers[0]) in done, np.bool_)[forwards]
    inputs, whole, weights = (by_phase[phase] for phase in ("I", "B", "W"))
    in_two, end = np.isfinite(inputs) & returned, spans.step_seconds
    once = np.where(np.isnan(whole), end, whole)
    first = np.where(returned, np.where(in_two, inputs, once), spans.ends[forwards])
    last = np.where(in_two, np.where(np.isnan(weights), end, weights), first)
    return [(first, np.where(in_two, 1.0 - KEPT_FOR_WEIGHTS, 1.0)), (last, np.where(in_two, KEPT_FOR_WEIGHTS, 0.0))]


def used_kinds(tasks: TaskTable) -> list[Task]:
    """The kinds that some task is of."""
    return [tasks.kinds[number] for number in np.unique(tasks.kind).tolist()]


def ends_of_passes(spans: TaskSpans, tasks: TaskTable, forwards: IntArray, phase: Phase) -> Floats:
    """The ends in seconds of the passes of a phase that follow forwards: of the same module, micro-batch and group, on
    layers that contain those of the forward, and on its ranks. NaN where there is none.
    """
    passes = tasks.where(lambda kind: kind.phase == phase)
    found = np.full(len(forwards), np.nan)
    if not len(passes):
        return found
    of_kinds = numbered([(kind.module, kind.group, kind.layers, kind.ranks) for kind in tasks.kinds])
    keys = of_kinds[tasks.kind] * (2 + tasks.micro_batch.max()) + tasks.micro_batch
    rising = passes[np.argsort(keys[passes], kind="stable")]
    at = np.searchsorted(keys[rising], keys[forwards], side="right") - 1
    same = (at >= 0) & (keys[rising[at]] == keys[forwards])
    found[same] = spans.ends[rising[at[same]]]
    for number in np.flatnonzero(~same).tolist():  # of a forward in parts the backward is a whole
        forward = tasks.task(int(forwards[number]))
        ends = [
            spans.ends[place]
            for place in passes[tasks.micro_batch[passes] == tasks.micro_batch[forwards[number]]].tolist()
            if contains(tasks.kinds[tasks.kind[place]], forward)
        ]
        found[number] = max(ends, default=np.nan)
    return found


def contains(one: Task, other: Task) -> bool:
    """Whether a pass is of the group of another one, on at least its ranks and layers."""
    same = (one.module, one.group) == (other.module, other.group)
    return same and {*other.ranks} <= {*one.ranks} and {*other.layers} <= {*one.layers}


def running_curve(base: float, changes: Floats) -> Floats:
    """The running sum of changes in bytes; of simultaneous changes, freeing comes first."""
    seconds, amounts = changes[np.lexsort((changes[:, 1], changes[:, 0]))].T
    points = np.stack([np.concatenate([[0.0], seconds]), np.cumsum(np.concatenate([[base], amounts]))], axis=1)
    last = np.append(points[1:, 0] != points[:-1, 0], True)  # of simultaneous changes
    curve: Floats = points[last]
    return curve


def waiting_outputs(
    spans: TaskSpans, tasks: TaskTable, output_bytes: Callable[[Task], OutputBytes]
) -> Iterator[HeldChange]:
    """Yield what ranks hold more or less of outputs that wait. `output_bytes`: of a send; zeros for what is not counted
    here.
    """
    between = tasks.where(lambda kind: kind.of == "F" and is_between_modules(kind)).tolist()
    sends = [place for place in between if tasks.kinds[tasks.kind[place]].phase == "send"]
    readers = reading_forwards(tasks)
    for place in sends:
        send, (forward, *_) = tasks.task(place), tasks.after[place] or [None]
        size = output_bytes(send)
        if not size.sent or forward is None:
            continue
        by_rank: dict[int, list[int]] = defaultdict(list)
        for reader in readers[place]:
            for rank in {*tasks.kinds[tasks.kind[reader]].ranks} & {*send.peers}:
                by_rank[rank].append(reader)
        computed = float(spans.ends[forward])
        begins = {rank: float(spans.starts[reading].min()) for rank, reading in by_rank.items()}
        taken = max(begins.values(), default=computed)
        for rank in send.ranks:
            yield HeldChange(rank, computed, size.sent)
            yield HeldChange(rank, max(taken, computed), -size.sent)
        for rank, reading in by_rank.items():
            yield HeldChange(rank, begins[rank], size.read)
            yield from (HeldChange(rank, float(spans.ends[each]), -size.read / len(reading)) for each in reading)


def reading_forwards(tasks: TaskTable) -> dict[int, list[int]]:
    """The forwards that wait for what each send between modules carries, by the place of the send."""
    recvs = tasks.where(lambda kind: (kind.phase, kind.of) == ("recv", "F") and is_between_modules(kind))
    forward = tasks.column(lambda kind: kind.phase == "F", np.bool_)
    sent_by = {place: tasks.after[place][0] for place in recvs.tolist()}
    readers: dict[int, list[int]] = defaultdict(list)
    owners = tasks.after.owners()
    reading = forward[owners] & np.isin(tasks.after.values, recvs)
    for reader, recv in zip(owners[reading].tolist(), tasks.after.values[reading].tolist(), strict=True):
        readers[sent_by[recv]].append(reader)
    return readers
