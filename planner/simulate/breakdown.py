"""Where the time of a rank goes: computing, communication that nothing hides, idleness."""

from collections.abc import Iterable

Span = tuple[float, float, float | None]  # start, end, share of it in which a compute task waits; None: communication


def busy_seconds(spans: Iterable[Span]) -> tuple[float, float]:
    """Seconds of computing and of exposed communication on one rank.

    Exposed is communication while no compute task runs, and the time that compute tasks themselves spend waiting:
    tasks that share the device wait together, so the one that waits least counts.
    """
    changes: list[tuple[float, int, float | None]] = []
    for start, end, waiting in spans:
        if end > start:
            changes += [(start, 1, waiting), (end, -1, waiting)]
    changes.sort(key=lambda change: change[:2])
    computing: list[float] = []
    transfers, last, compute, exposed = 0, 0.0, 0.0, 0.0
    for now, step, waiting in changes:
        if computing:
            compute += (now - last) * (1 - min(computing))
            exposed += (now - last) * min(computing)
        elif transfers:
            exposed += now - last
        last = now
        if waiting is None:
            transfers += step
        elif step > 0:
            computing.append(waiting)
        else:
            computing.remove(waiting)
    return compute, exposed
