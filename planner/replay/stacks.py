"""Which operators a moment of a thread lies in."""

from collections.abc import Sequence
from typing import NamedTuple

from planner.replay.calls import PREFIX
from planner.replay.read import STEP
from planner.replay.trace import Host

Moment = tuple[int, float]  # thread, time
NOTHING = "between operators"


class Within(NamedTuple):
    """What a moment lies in, the outermost first; neither steps nor calls of the runtime."""

    annotations: tuple[str, ...]
    operators: tuple[str, ...]

    @property
    def operator(self) -> str:
        """The outermost operator; without one, what the time is said to be for."""
        return next(iter(self.operators), "") or next(reversed(self.annotations), NOTHING)


def stacks(host: Host, moments: Sequence[Moment]) -> list[Within]:
    """Of each moment."""
    found = [Within((), ())] * len(moments)
    threads, starts, ends, names = (each.tolist() for each in (host.thread, host.start, host.end, host.name))
    annotations = host.annotation.tolist()
    shown = [not (STEP.match(name) or PREFIX.match(name)) for name in host.names]
    held: list[int] = []  # spans that may hold the moment
    at, here = 0, -1
    for i in sorted(range(len(moments)), key=lambda i: moments[i]):
        thread, time = moments[i]
        while at < len(starts) and (threads[at], starts[at]) <= (thread, time):
            if threads[at] != here:
                here, held = threads[at], []
            while held and ends[held[-1]] <= starts[at]:
                held.pop()
            held.append(at)
            at += 1
        inside = [span for span in held if ends[span] >= time and shown[names[span]]] if here == thread else []
        said, did = (
            [host.names[names[span]] for span in inside if annotations[span] == kind] for kind in (True, False)
        )
        found[i] = Within(tuple(said), tuple(did))
    return found
