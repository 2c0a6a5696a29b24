"""What a rank's host threads spend their own time on: each moment belongs to the innermost operator or annotation.

Calls of the device runtime belong to the operator that makes them. A moment within a data loader's span or a garbage
collector's belongs to those, whatever else is inside; one within no span is between operators. What a thread waits for
is not its own time.
"""

from collections.abc import Iterator

import numpy as np

from planner.plan.task import LOADER
from planner.replay.dependencies.execution_graph import ExecutionGraph
from planner.replay.recording.recorded_names import GARBAGE, RUNTIME_PREFIX, host_kind
from planner.replay.recording.recorded_trace import BETWEEN_OPERATORS, PROFILER_STEP, HostSpans


class HostTime:
    """The own time of one rank's host, by name."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self.names: list[str] = [BETWEEN_OPERATORS]
        self.pieces = [self.thread_pieces(graph.trace.host, thread) for thread in range(len(graph.trace.threads))]
        self.seconds: dict[tuple[str, str], float] = {}
        for segment in graph.segments:
            for name, seconds in self.within(
                segment.thread, segment.end - segment.seconds - segment.unseen, segment.end
            ):
                self.seconds["host", name] = self.seconds.get(("host", name), 0.0) + seconds

    def thread_pieces(self, host: HostSpans, thread: int) -> tuple[np.ndarray, np.ndarray]:
        """Times at which the innermost span of a thread changes, (n,), and the number of its name from then, (n,)."""
        numbers = {BETWEEN_OPERATORS: 0, **{name: i for i, name in enumerate(self.names)}}
        labels = []
        for name in host.names:
            shown = not (PROFILER_STEP.match(name) or RUNTIME_PREFIX.match(name))
            labels.append(numbers.setdefault(host_kind(name), len(numbers)) if shown else -1)
        self.names = [*numbers]
        special = {numbers.get(LOADER, -2), numbers.get(GARBAGE, -2)}
        low, high = np.searchsorted(host.thread, [thread, thread + 1])
        times, inside = [0.0], [0]
        opened: list[tuple[float, int]] = []  # end and label
        spans = zip(*(each[low:high].tolist() for each in (host.start, host.end, host.name)), strict=True)

        def change(time: float, label: int) -> None:
            times.append(max(time, times[-1]))
            inside.append(label)

        for start, end, name in spans:
            while opened and opened[-1][0] <= start:
                over = opened.pop()[0]
                change(over, opened[-1][1] if opened else 0)
            outer = opened[-1][1] if opened else 0
            label = outer if labels[name] < 0 or outer in special else labels[name]
            opened.append((end, label))
            change(start, label)
        while opened:
            over = opened.pop()[0]
            change(over, opened[-1][1] if opened else 0)
        return np.array(times), np.array(inside)

    def within(self, thread: int, begin: float, end: float) -> Iterator[tuple[str, float]]:
        """Names and seconds of a time span of a thread."""
        times, inside = self.pieces[thread]
        at = int(np.searchsorted(times, begin, side="right")) - 1
        while begin < end:
            until = min(end, float(times[at + 1]) if at + 1 < len(times) else end)
            if until > begin:
                yield self.names[int(inside[at])], until - begin
            begin, at = max(begin, until), at + 1
            if at >= len(times):
                return
