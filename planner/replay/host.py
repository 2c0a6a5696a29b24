"""Spans on the host's threads, gathered in arrays: there may be a million of them."""

from array import array

import numpy as np

from planner.replay.trace import Host


class HostSpans:
    """One by one, then sorted."""

    def __init__(self) -> None:
        self.thread, self.name, self.annotation = array("i"), array("i"), array("b")
        self.start, self.end = array("d"), array("d")
        self.names: dict[str, int] = {}

    @property
    def count(self) -> int:
        return len(self.start)

    def add(self, thread: int, start: float, end: float, name: str, *, annotation: bool) -> None:
        self.thread.append(thread)
        self.start.append(start)
        self.end.append(end)
        self.name.append(self.names.setdefault(name, len(self.names)))
        self.annotation.append(annotation)

    def sorted(self) -> Host:
        """By thread, then so that whoever holds another one comes before it."""
        thread, name = np.array(self.thread, dtype=np.int32), np.array(self.name, dtype=np.int32)
        start, end = np.array(self.start, dtype=np.float64), np.array(self.end, dtype=np.float64)
        order = np.lexsort((-end, start, thread))
        annotation = np.array(self.annotation, dtype=np.bool_)[order]
        return Host(thread[order], start[order], end[order], name[order], annotation, tuple(self.names))
