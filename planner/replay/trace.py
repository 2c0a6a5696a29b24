"""A recorded trace, as the rest of the package sees it: calls, operations of the device, operators, steps.

Times are in seconds since the first event of the capture; `base` is when that was, on the clock of the host.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Call(NamedTuple):
    """A call of the device's runtime that puts work on a stream, waits for some, or marks a place in one."""

    name: str
    thread: int
    start: float
    end: float
    correlation: int


class Op(NamedTuple):
    """What runs on a stream: a kernel, a copy or a fill."""

    name: str
    kind: str  # kernel, memcpy, memset
    stream: int
    start: float
    end: float
    correlation: int
    group: str  # process group of a collective, "" when it is not said


class Waited(NamedTuple):
    """What newer traces say about a call that waits; streams by number, −1: not said."""

    stream: int
    on_stream: int
    record: int  # correlation of the call that recorded the event


class Mark(NamedTuple):
    """A step: an annotation `ProfilerStep#n`."""

    name: str
    thread: int
    start: float
    end: float


class Arrow(NamedTuple):
    """A flow arrow from a forward operator to its backward one."""

    thread: int
    time: float
    to_thread: int
    to_time: float


@dataclass(frozen=True, slots=True)
class Host:
    """Spans on the threads of the host, sorted by thread, start and −end: operators, annotations, all calls."""

    thread: NDArray[np.int32]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    name: NDArray[np.int32]
    annotation: NDArray[np.bool_]  # says what the time is for; may hold waits
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """One rank's capture."""

    source: str
    rank: int | None
    world_size: int | None
    device: str
    versions: dict[str, str]
    base: float
    threads: tuple[str, ...]
    streams: tuple[str, ...]
    host: Host
    calls: tuple[Call, ...]
    ops: tuple[Op, ...]  # sorted by stream and start
    waited: dict[int, Waited]  # by correlation
    links: tuple[Arrow, ...]
    steps: tuple[Mark, ...]
    notes: tuple[str, ...]

    @property
    def end(self) -> float:
        """Of the last event."""
        host = float(self.host.end.max(initial=0.0))
        return max(host, max((op.end for op in self.ops), default=0.0))
