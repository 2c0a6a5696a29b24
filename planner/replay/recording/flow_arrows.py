"""Flow arrows between events: from forward to backward operators, and from calls to the operations they launch.

The second kind is used only where events carry no correlation ids.
"""

from array import array

from planner.replay.recording.kineto_events import NumberOrText, TraceEvent, parse_number
from planner.replay.recording.recorded_trace import ForwardBackwardArrow

ArrowPoint = tuple[str, str, float]  # process, thread, time as written


class FlowArrows:
    """Collects the two ends of arrows."""

    def __init__(self) -> None:
        self.forward: dict[str, ArrowPoint] = {}
        self.backward: dict[str, ArrowPoint] = {}
        self.ids: dict[str, int] = {}
        self.calls, self.begun = ArrowEnds(), ArrowEnds()

    def add(self, event: TraceEvent) -> bool:
        """Add one end of an arrow; False if its time cannot be read."""
        time = parse_number(event.ts)
        if time is None:
            return False
        if event.cat == "fwdbwd":
            ends = self.forward if event.ph == "s" else self.backward
            ends[normalised_id(event.id)] = (normalised_id(event.pid), normalised_id(event.tid), time)
        elif event.cat == "ac2g":
            (self.calls if event.ph == "s" else self.begun).add(self.id(event.id), time)
        return True

    def id(self, value: NumberOrText) -> float:
        found = parse_number(value)
        return float(-1 - self.ids.setdefault(str(value), len(self.ids))) if found is None else found

    def forward_backward_arrows(
        self, threads: dict[tuple[str, str], int], seconds: float, base: float
    ) -> list[ForwardBackwardArrow]:
        """Arrows from forward to backward; `seconds`: length of the file's unit, `base`: time zero in that unit."""
        found = []
        for key, (pid, tid, time) in self.forward.items():
            to_pid, to_tid, to_time = self.backward.get(key, ("", "", 0.0))
            if (pid, tid) in threads and (to_pid, to_tid) in threads:
                times = ((time - base) * seconds, (to_time - base) * seconds)
                found.append(ForwardBackwardArrow(threads[pid, tid], times[0], threads[to_pid, to_tid], times[1]))
        return sorted(found, key=lambda arrow: (arrow.to_thread, arrow.to_time))

    def launch_correlations(self) -> tuple[dict[float, int], dict[float, int]]:
        """Numbers of launch arrows by start of the call and by start of the launched operation, in the file's unit."""
        ends = dict(zip(self.begun.id, self.begun.time, strict=True))
        tails = dict(zip(self.calls.id, self.calls.time, strict=True))
        both = [(time, ends[key]) for key, time in tails.items() if key in ends]
        return {tail: i for i, (tail, _) in enumerate(both)}, {head: i for i, (_, head) in enumerate(both)}


class ArrowEnds:
    """One end of each of many arrows: id and time."""

    def __init__(self) -> None:
        self.id, self.time = array("d"), array("d")

    def add(self, number_of: float, time: float) -> None:
        self.id.append(number_of)
        self.time.append(time)


def normalised_id(value: NumberOrText) -> str:
    """A process or thread id as text: 7, 7.0 and "7" are the same."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
