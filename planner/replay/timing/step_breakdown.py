"""Where the time of a step goes on the device: compute, overlapped and exposed communication, copies, idle."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.replay.recording.recorded_names import is_communication

TimeArray = NDArray[np.float64]
COPIES = ("memcpy", "memset")  # classes of work


class StepParts(NamedTuple):
    """Seconds that add up to the step; the fields are keys of the JSON answer."""

    compute: float  # without concurrent communication
    overlapped: float  # compute and communication at once
    exposed_communication: float
    copies: float  # without either
    idle: float


class StepBreakdown(NamedTuple):
    """The breakdown of the mean step."""

    parts: StepParts
    kinds: dict[str, float]  # seconds of each class of work, the longest first


def mean_breakdown(
    kinds: NDArray[np.str_], starts: TimeArray, ends: TimeArray, windows: list[tuple[float, float]]
) -> StepBreakdown:
    """Mean breakdown over some windows, given class, start and end of operations in seconds, (operations,) each."""
    names = sorted({*kinds.tolist()})
    sorts = {
        name: "communication" if is_communication(name) else "copies" if name in COPIES else "compute" for name in names
    }
    parts = [parts_of_window(kinds, sorts, starts, ends, window) for window in windows]
    mean = StepParts(*(float(np.mean([getattr(p, name) for p in parts])) for name in StepParts._fields))
    seconds = {name: mean_seconds_inside(starts[kinds == name], ends[kinds == name], windows) for name in names}
    ranked = sorted(
        ((name, value) for name, value in seconds.items() if value > 0), key=lambda pair: (-pair[1], pair[0])
    )
    return StepBreakdown(mean, dict(ranked))


def parts_of_window(
    kinds: NDArray[np.str_], sorts: dict[str, str], starts: TimeArray, ends: TimeArray, window: tuple[float, float]
) -> StepParts:
    """Parts of one window; `sorts`: part by class of work."""
    low, high = window
    within = (ends > low) & (starts < high)
    sort = np.array([sorts[kind] for kind in kinds[within].tolist()], dtype=np.str_)
    begin, end = np.clip(starts[within], low, high), np.clip(ends[within], low, high)

    def union(*names: str) -> float:
        chosen = np.isin(sort, names)
        return union_seconds(begin[chosen], end[chosen])

    compute, communication = union("compute"), union("communication")
    both, all_busy = union("compute", "communication"), union("compute", "communication", "copies")
    return StepParts(
        compute=both - communication,
        overlapped=max(0.0, compute + communication - both),
        exposed_communication=both - compute,
        copies=all_busy - both,
        idle=max(0.0, high - low - all_busy),
    )


def union_seconds(starts: TimeArray, ends: TimeArray) -> float:
    """Length of the union of intervals."""
    if not len(starts):
        return 0.0
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ends)[:-1]])
    return float(np.maximum(0.0, ends - np.maximum(starts, before)).sum())


def mean_seconds_inside(starts: TimeArray, ends: TimeArray, windows: list[tuple[float, float]]) -> float:
    """Seconds of intervals within the mean window."""
    total = sum(float(np.maximum(0.0, np.minimum(ends, high) - np.maximum(starts, low)).sum()) for low, high in windows)
    return total / max(1, len(windows))
