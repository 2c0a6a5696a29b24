"""Memory in use on every rank over a timeline: model and optimizer states all the time, activations from a forward
to its backward, and recomputed activations while a backward runs.

Where a backward is split, the input gradient (I) frees what the weight gradient (W) does not need; the share that W
needs is `KEPT_FOR_WEIGHTS`.

A frozen encoder frees a forward's activations at its end, and holds its outputs until the last of its readers begins
to take them. Who reads holds them from there, and lets go of a part with each of its forwards that read. So the further
such an encoder runs ahead, the more waits where it computed.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from planner.plan.mesh.identical_groups import EquivalentRanks
from planner.plan.schedules.zero_bubble import KEPT_FOR_WEIGHTS
from planner.plan.task import Phase, Task
from planner.plan.tokens.resharding import is_between_modules
from planner.simulate.timeline import Repetition, TaskEvent, Timeline
from planner.specs.base import Layers, Ranks

Change = tuple[float, float]  # (seconds, bytes more from then on)
Curve = tuple[tuple[float, float], ...]  # (seconds, bytes in use from then on)


class OutputBytes(NamedTuple):
    """Bytes of the outputs that a send carries, on each rank that sends and on each that reads."""

    sent: float
    read: float


class HeldChange(NamedTuple):
    """From `seconds` on, a rank holds `amount` bytes more."""

    rank: int
    seconds: float
    amount: float


@dataclass(frozen=True)
class MemoryCurves:
    """Bytes in use over time, one curve per rank; equivalent ranks share one object."""

    curves: tuple[Curve, ...]

    @cached_property
    def peaks(self) -> tuple[float, ...]:
        """Peak bytes of each rank."""
        distinct = {id(curve): curve for curve in self.curves}
        peak = {name: max(held for _, held in curve) for name, curve in distinct.items()}
        return tuple(peak[id(curve)] for curve in self.curves)


@dataclass(frozen=True, slots=True)
class FurtherBytes:
    """What ranks hold besides. `update`: a rank while the optimizer runs, which may be negative; `outputs`: of a send
    between modules, while it waits for its readers.
    """

    update: Callable[[int], float] = lambda _: 0.0
    outputs: Callable[[Task], OutputBytes] | None = None


def simulate_memory(
    timeline: Timeline,
    tasks: Sequence[Task],
    activation_bytes: Callable[[Task], float],
    state_bytes: Callable[[int], float],
    recomputed_bytes: Callable[[Task], float] = lambda _: 0.0,
    further: FurtherBytes | None = None,
) -> MemoryCurves:
    """Memory curves of a simulated step.

    `activation_bytes`: what a forward keeps on each of its ranks for the backward; `state_bytes`: what a rank holds
    throughout; `recomputed_bytes`: what a backward holds in addition on each of its ranks while it runs.

    A forward without a backward keeps its activations to the end of the step; those of layers that have no backward at
    all are freed when the forward ends.
    """
    further = further or FurtherBytes()
    by_id = {task.id: task for task in tasks}
    freed, alike = ActivationRelease(timeline, by_id), EquivalentRanks(event.ranks for event in timeline.events)
    changes: dict[int | None, list[Change]] = defaultdict(list)  # of one rank of each kind
    own: dict[int, list[Change]] = defaultdict(list)  # of each rank: of a kind devices and readers may differ
    for event in timeline.events:
        if event.phase == "F":
            task = by_id[event.id]
            kept = activation_bytes(task)
            frees = [(end, -share * kept) for end, share in freed.release_times(task, event)] if kept else []
            for rank in alike.of(event.ranks) if kept else ():
                changes[rank] += [(event.start, kept), *frees]
        elif event.phase in ("B", "I"):
            extra = recomputed_bytes(by_id[event.id])
            for rank in alike.of(event.ranks) if extra else ():
                changes[rank] += [(event.start, extra), (event.end, -extra)]
        elif event.phase == "update":
            for rank in event.ranks:
                extra = further.update(rank)
                own[rank] += [(event.start, extra), (event.end, -extra)] if extra else []
    for held in waiting_outputs(timeline, tasks, further.outputs) if further.outputs else ():
        own[held.rank].append((held.seconds, held.amount))
    keys = []
    for rank in range(timeline.ranks):
        of = timeline.representative_of(rank)
        keys.append((state_bytes(rank), alike.representative.get(of), tuple(own.get(of, ()))))
    curves = {
        (base, of, more): running_curve(base, [*(changes.get(of, ())), *more]) for base, of, more in dict.fromkeys(keys)
    }
    return MemoryCurves(tuple(curves[key] for key in keys))


class ActivationRelease:
    """When the activations of a forward are freed: at the end of its backward, or in parts at the ends of I and W."""

    def __init__(self, timeline: Timeline, by_id: dict[str, Task]) -> None:
        phases: tuple[Phase, ...] = ("B", "I", "W")
        self.by_phase = {phase: BackwardEnds(timeline, by_id, phase) for phase in phases}
        done = {key for each in self.by_phase.values() for key in each.layers}
        self.with_backward = {(module, layer) for module, layers in done for layer in layers}
        self.step_seconds = timeline.step_seconds

    def release_times(self, forward: Task, event: TaskEvent) -> list[tuple[float, float]]:
        """Pairs of the time in seconds and the share freed then."""
        if (forward.module, forward.layers[0]) not in self.with_backward:
            return [(event.end, 1.0)]
        inputs = self.by_phase["I"].end_of_pass(forward, event)
        if inputs is None:
            whole = self.by_phase["B"].end_of_pass(forward, event)
            return [(self.step_seconds if whole is None else whole, 1.0)]
        weights = self.by_phase["W"].end_of_pass(forward, event)
        last = self.step_seconds if weights is None else weights
        return [(inputs, 1.0 - KEPT_FOR_WEIGHTS), (last, KEPT_FOR_WEIGHTS)]


class BackwardEnds:
    """Ends of the backward passes of one phase, looked up by forward: same module, micro-batch and group, and layers
    that contain those of the forward.
    """

    def __init__(self, timeline: Timeline, by_id: dict[str, Task], phase: Phase) -> None:
        self.events: dict[tuple[str, int | None, str], list[tuple[Task, TaskEvent]]] = {}
        self.exact: dict[tuple[str, int | None, str, Layers, Ranks], float] = {}
        self.layers: set[tuple[str, Layers]] = set()
        for event in timeline.events:
            if event.phase == phase:
                task = by_id[event.id]
                self.layers.add((task.module, task.layers))
                self.events.setdefault((task.module, task.micro_batch, task.group), []).append((task, event))
                self.exact[task.module, task.micro_batch, task.group, task.layers, event.ranks] = event.end

    def end_of_pass(self, forward: Task, event: TaskEvent) -> float | None:
        """End in seconds of the pass on the ranks of the forward; None where there is none."""
        key = (forward.module, forward.micro_batch, forward.group)
        end = self.exact.get((*key, forward.layers, event.ranks))
        if end is not None:
            return end
        ends = [
            back.end
            for task, back in self.events.get(key, ())
            if set(event.ranks) <= set(back.ranks) and set(forward.layers) <= set(task.layers)
        ]
        return max(ends, default=None)


def running_curve(base: float, changes: list[tuple[float, float]]) -> Curve:
    """The running sum of changes in bytes; of simultaneous changes, freeing comes first."""
    points, held = [(0.0, base)], base
    for seconds, amount in sorted(changes):
        held += amount
        if points[-1][0] == seconds:
            points[-1] = (seconds, held)
        else:
            points.append((seconds, held))
    return tuple(points)


def whole_curves(memory: MemoryCurves, timeline: Timeline, abridged: bool = False) -> MemoryCurves:
    """The curves over the whole step of a timeline in which rounds repeat; `abridged`: without these."""
    repetition, starts = timeline.repetition, timeline.round_starts()
    if repetition is None:
        return memory
    keys = [(id(curve), timeline.representative_of(rank)) for rank, curve in enumerate(memory.curves)]
    first = {key: rank for rank, key in reversed([*enumerate(keys)])}
    whole = {
        key: whole_curve(memory.curves[rank], repetition, starts.get(key[1], 0.0), abridged)
        for key, rank in first.items()
    }
    return MemoryCurves(tuple(whole[key] for key in keys))


def whole_curve(curve: Curve, repetition: Repetition, window: float, abridged: bool) -> Curve:
    """A rank's bytes over the whole step, given those of the simulated one. `window`: when its last round starts."""
    seconds, times = repetition.seconds, [at for at, _ in curve]
    first, last = bisect_left(times, window), bisect_left(times, window + seconds)
    numbers = () if abridged else range(1, repetition.rounds + 1)
    again = ((at + number * seconds, held) for number in numbers for at, held in curve[first:last])
    late = repetition.rounds * seconds
    return (*curve[:last], *again, *((at + late, held) for at, held in curve[last:]))


def waiting_outputs(
    timeline: Timeline, tasks: Sequence[Task], output_bytes: Callable[[Task], OutputBytes]
) -> Iterator[HeldChange]:
    """Yield what ranks hold more or less of outputs that wait. `output_bytes`: of a send; zeros for what is not counted
    here.
    """
    events = {event.id: event for event in timeline.events if event.phase == "F"}
    readers = reading_forwards(tasks)
    for send in tasks:
        if send.phase != "send" or send.of != "F" or not is_between_modules(send):
            continue
        size, computed = output_bytes(send), events.get(send.after[0])
        if not size.sent or computed is None:
            continue
        by_rank: dict[int, list[TaskEvent]] = defaultdict(list)
        for reader in readers[send.id]:
            for rank in {*reader.ranks} & {*send.peers}:
                by_rank[rank].append(events[reader.id])
        begins = {rank: min(each.start for each in reading) for rank, reading in by_rank.items()}
        taken = max(begins.values(), default=computed.end)
        for rank in send.ranks:
            yield HeldChange(rank, computed.end, size.sent)
            yield HeldChange(rank, max(taken, computed.end), -size.sent)
        for rank, reading in by_rank.items():
            yield HeldChange(rank, begins[rank], size.read)
            yield from (HeldChange(rank, each.end, -size.read / len(reading)) for each in reading)


def reading_forwards(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    """Return the forwards that wait for what each send between modules carries, by the id of the send."""
    sent_by = {
        task.id: task.after[0] for task in tasks if task.phase == "recv" and task.of == "F" and is_between_modules(task)
    }
    readers: dict[str, list[Task]] = defaultdict(list)
    for task in tasks if sent_by else ():
        if task.phase == "F":
            for id in task.after:
                if id in sent_by:
                    readers[sent_by[id]].append(task)
    return readers
