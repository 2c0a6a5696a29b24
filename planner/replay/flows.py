"""Arrows between events: from forward operators to backward ones, and from calls to what they launched.

The second kind is asked only where events do not say their correlation themselves.
"""

from array import array

from planner.replay.decode import Either, Event, number
from planner.replay.trace import Arrow

End = tuple[str, str, float]  # process, thread, time as written


class Flows:
    """Arrows, as they are read."""

    def __init__(self) -> None:
        self.forward: dict[str, End] = {}
        self.backward: dict[str, End] = {}
        self.ids: dict[str, int] = {}
        self.calls, self.begun = Ends(), Ends()

    def add(self, event: Event) -> bool:
        """Take the end of an arrow; whether it could be read."""
        time = number(event.ts)
        if time is None:
            return False
        if event.cat == "fwdbwd":
            ends = self.forward if event.ph == "s" else self.backward
            ends[text(event.id)] = (text(event.pid), text(event.tid), time)
        elif event.cat == "ac2g":
            (self.calls if event.ph == "s" else self.begun).add(self.id(event.id), time)
        return True

    def id(self, value: Either) -> float:
        found = number(value)
        return float(-1 - self.ids.setdefault(str(value), len(self.ids))) if found is None else found

    def links(self, threads: dict[tuple[str, str], int], seconds: float, base: float) -> list[Arrow]:
        """From forward to backward; `seconds`: of a unit of time as written, `base`: where it begins."""
        found = []
        for key, (pid, tid, time) in self.forward.items():
            to_pid, to_tid, to_time = self.backward.get(key, ("", "", 0.0))
            if (pid, tid) in threads and (to_pid, to_tid) in threads:
                times = ((time - base) * seconds, (to_time - base) * seconds)
                found.append(Arrow(threads[pid, tid], times[0], threads[to_pid, to_tid], times[1]))
        return sorted(found, key=lambda arrow: (arrow.to_thread, arrow.to_time))

    def launches(self) -> tuple[dict[float, int], dict[float, int]]:
        """Numbers of arrows, by when the call begins that launches, and by when what it launched begins; as written."""
        ends = dict(zip(self.begun.id, self.begun.time, strict=True))
        tails = dict(zip(self.calls.id, self.calls.time, strict=True))
        both = [(time, ends[key]) for key, time in tails.items() if key in ends]
        return {tail: i for i, (tail, _) in enumerate(both)}, {head: i for i, (_, head) in enumerate(both)}


class Ends:
    """Of many arrows, by number."""

    def __init__(self) -> None:
        self.id, self.time = array("d"), array("d")

    def add(self, number_of: float, time: float) -> None:
        self.id.append(number_of)
        self.time.append(time)


def text(value: Either) -> str:
    """7, 7.0 and "7" are one thread."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
