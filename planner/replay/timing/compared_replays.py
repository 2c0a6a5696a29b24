"""Two recordings compared: which kernels changed, came and went, and where the step's time did; both add up.

Of each the mean step of the mean rank. The seconds of kernels add up to those of all work, beside each other as some
of it may run; the parts of the step, to the step.
"""

from collections import Counter
from typing import Literal, NamedTuple

import numpy as np

from planner.replay.recording.recorded_names import kernel_class
from planner.replay.timing.step_breakdown import StepParts
from planner.replay.timing.timed_replay import Replay


class KernelChange(NamedTuple):
    """One kernel, or other work of the device, in seconds of a step; the fields are keys of the JSON answer."""

    name: str
    kind: str
    change: Literal["changed", "came", "went"]
    before: float
    after: float
    times_before: float  # of a step
    times_after: float

    @property
    def seconds(self) -> float:
        """By how much longer it takes."""
        return self.after - self.before


class ReplayComparison(NamedTuple):
    """What differs between two recordings; seconds of the mean step."""

    before: StepParts
    after: StepParts
    kernels: list[KernelChange]  # the largest difference first

    @property
    def seconds(self) -> float:
        """By how much longer the step takes: the sum of the differences of its parts."""
        return sum(self.after) - sum(self.before)

    @property
    def kernel_seconds(self) -> float:
        """By how much longer all work of the device takes: the sum over kernels."""
        return sum(each.seconds for each in self.kernels)


WorkName = tuple[str, str]  # name, kind


def compare_replays(before: Replay, after: Replay) -> ReplayComparison:
    """Compare two replays."""
    (seconds_before, times_before), (seconds_after, times_after) = (work_by_name(each) for each in (before, after))
    kernels = []
    for name in {*seconds_before, *seconds_after}:
        was, now = seconds_before.get(name, 0.0), seconds_after.get(name, 0.0)
        change: Literal["changed", "came", "went"] = (
            "came" if name not in times_before else "went" if name not in times_after else "changed"
        )
        kernels.append(KernelChange(*name, change, was, now, times_before.get(name, 0.0), times_after.get(name, 0.0)))
    kernels.sort(key=lambda each: (-abs(each.seconds), each.name))
    return ReplayComparison(mean_parts(before), mean_parts(after), kernels)


def mean_parts(replay: Replay) -> StepParts:
    """Parts of the mean step of the mean rank."""
    parts = [replay.breakdown(g).parts for g in range(len(replay.graphs))]
    return StepParts(*(float(np.mean([getattr(each, name) for each in parts])) for name in StepParts._fields))


def work_by_name(replay: Replay) -> tuple[dict[WorkName, float], dict[WorkName, float]]:
    """Seconds and number of each kernel in the mean step of the mean rank, by where it begins."""
    seconds: dict[WorkName, float] = {}
    times = Counter[WorkName]()
    steps = sum(len(graph.steps) for graph in replay.graphs) or 1
    for g, graph in enumerate(replay.graphs):
        windows = replay.step_windows(g)
        starts = replay.op_times(g)[0].tolist()
        for op, work, start in zip(graph.trace.ops, graph.op_timings, starts, strict=True):
            if any(low <= start < high for low, high in windows):
                name = (op.name, kernel_class(op.name, op.kind))
                seconds[name] = seconds.get(name, 0.0) + work.seconds / steps
                times[name] += 1
    return seconds, {name: count / steps for name, count in times.items()}
