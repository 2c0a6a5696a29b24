"""Bytes in use on every rank over a timeline: states all the time, activations from a forward to its backward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.plan.task import Task
from planner.simulate.timeline import Event, Timeline
from planner.specs.base import Layers, Ranks

Curve = tuple[tuple[float, float], ...]  # (seconds, bytes from then on)


@dataclass(frozen=True, slots=True)
class Memory:
    """Of each rank."""

    curves: tuple[Curve, ...]

    @property
    def peaks(self) -> tuple[float, ...]:
        """Most bytes at once on each rank."""
        return tuple(max(held for _, held in curve) for curve in self.curves)


def memory_use(
    timeline: Timeline,
    tasks: Sequence[Task],
    activation_bytes: Callable[[Task], float],
    state_bytes: Callable[[int], float],
) -> Memory:
    """`activation_bytes`: what a forward leaves on each of its ranks; `state_bytes`: what a rank holds anyway.

    A forward without a backward keeps its activations to the end of the step.
    """
    by_id = {task.id: task for task in tasks}
    freed = Backwards(timeline, by_id)
    changes: list[list[tuple[float, float]]] = [[] for _ in range(timeline.ranks)]
    for event in timeline.events:
        if event.phase == "F":
            task = by_id[event.id]
            held, end = activation_bytes(task), freed.after(task, event)
            for rank in event.ranks if held else ():
                changes[rank] += [(event.start, held), (end, -held)]
    return Memory(tuple(curve(state_bytes(rank), changes[rank]) for rank in range(timeline.ranks)))


class Backwards:
    """When the backward that matches a forward ends: same module, micro-batch and group, layers that contain its."""

    def __init__(self, timeline: Timeline, by_id: dict[str, Task]) -> None:
        self.step_seconds = timeline.step_seconds
        self.events: dict[tuple[str, int | None, str], list[tuple[Task, Event]]] = {}
        self.exact: dict[tuple[str, int | None, str, Layers, Ranks], float] = {}
        for event in timeline.events:
            if event.phase == "B":
                task = by_id[event.id]
                self.events.setdefault((task.module, task.micro_batch, task.group), []).append((task, event))
                self.exact[task.module, task.micro_batch, task.group, task.layers, event.ranks] = event.end

    def after(self, forward: Task, event: Event) -> float:
        """The end of the backward on the forward's own ranks."""
        key = (forward.module, forward.micro_batch, forward.group)
        end = self.exact.get((*key, forward.layers, event.ranks))
        if end is not None:
            return end
        ends = [
            back.end
            for task, back in self.events.get(key, ())
            if set(event.ranks) <= set(back.ranks) and set(forward.layers) <= set(task.layers)
        ]
        return max(ends, default=self.step_seconds)


def curve(base: float, changes: list[tuple[float, float]]) -> Curve:
    """The running sum; of what happens at the same time, freeing comes first."""
    points, held = [(0.0, base)], base
    for seconds, amount in sorted(changes):
        held += amount
        if points[-1][0] == seconds:
            points[-1] = (seconds, held)
        else:
            points.append((seconds, held))
    return tuple(points)
