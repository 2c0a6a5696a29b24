"""Finds the operators and annotations that enclose a moment on a thread."""

from collections.abc import Sequence
from typing import NamedTuple

from planner.replay.recording.kineto_reader import PROFILER_STEP
from planner.replay.recording.recorded_trace import HostSpans
from planner.replay.recording.runtime_calls import RUNTIME_PREFIX

Moment = tuple[int, float]  # thread, seconds
BETWEEN_OPERATORS = "between operators"


class EnclosingSpans(NamedTuple):
    """Spans that enclose a moment, outermost first, without steps and runtime calls."""

    annotations: tuple[str, ...]
    operators: tuple[str, ...]

    @property
    def operator(self) -> str:
        """The outermost operator; without one, the innermost annotation."""
        return next(iter(self.operators), "") or next(reversed(self.annotations), BETWEEN_OPERATORS)


def enclosing_spans(host: HostSpans, moments: Sequence[Moment]) -> list[EnclosingSpans]:
    """The enclosing spans of each moment."""
    found = [EnclosingSpans((), ())] * len(moments)
    threads, starts, ends, names = (each.tolist() for each in (host.thread, host.start, host.end, host.name))
    annotations = host.annotation.tolist()
    shown = [not (PROFILER_STEP.match(name) or RUNTIME_PREFIX.match(name)) for name in host.names]
    opened: list[int] = []  # spans that may enclose the moment
    at, here = 0, -1
    for i in sorted(range(len(moments)), key=lambda i: moments[i]):
        thread, time = moments[i]
        while at < len(starts) and (threads[at], starts[at]) <= (thread, time):
            if threads[at] != here:
                here, opened = threads[at], []
            while opened and ends[opened[-1]] <= starts[at]:
                opened.pop()
            opened.append(at)
            at += 1
        inside = [span for span in opened if ends[span] >= time and shown[names[span]]] if here == thread else []
        annotated, operators = (
            [host.names[names[span]] for span in inside if annotations[span] == kind] for kind in (True, False)
        )
        found[i] = EnclosingSpans(tuple(annotated), tuple(operators))
    return found
