"""The event clock compiled from clock.c when the package was built; without it, clock.py runs instead, slower."""

import ctypes
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.plan.tasks.ragged_array import RaggedArray
from planner.simulate.activities import Activities, ActivityTimes, require_valid
from planner.simulate.clock import run_in_python as run_clock

LIBRARY = Path(__file__).with_name("libclock.so")
COUNTS = ("count", "lane_count")
FLOATS = ("seconds", "share")
NUMBERS = ("queued_by", "sharer")
LISTS = ("lanes", "after")


class ActivitiesStruct(ctypes.Structure):
    """The struct `Activities` of clock.c; pointers are addresses of numpy arrays."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in COUNTS),
        *((name, ctypes.c_void_p) for name in FLOATS + NUMBERS),
        *((f"{name}_{part}", ctypes.c_void_p) for name in LISTS for part in ("first", "of")),
    ]


def load_library() -> ctypes.CDLL | None:
    """The compiled library, or None where there is none."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    library.planner_clock.restype = ctypes.c_int64
    library.planner_clock.argtypes = [ctypes.POINTER(ActivitiesStruct), *[ctypes.c_void_p] * 4]
    return library


LIB = load_library()


def run_activities(activities: Activities) -> tuple[ActivityTimes, NDArray[np.bool_]]:
    """Times of all activities, and which of them ended. Raises InputError when the activities are invalid."""
    require_valid(activities)
    return run_compiled(LIB, activities) if LIB else run_clock(activities)


def run_compiled(library: ctypes.CDLL, activities: Activities) -> tuple[ActivityTimes, NDArray[np.bool_]]:
    """Times of all activities, and which of them ended, by clock.c. Raises MemoryError."""
    buffers: dict[str, NDArray[np.float64] | NDArray[np.int64]] = {}  # referenced here while the library reads them
    for name in FLOATS:
        buffers[name] = np.ascontiguousarray(getattr(activities, name), dtype=np.float64)
    for name in NUMBERS:
        buffers[name] = np.ascontiguousarray(getattr(activities, name), dtype=np.int64)
    for name in LISTS:
        lists: RaggedArray = getattr(activities, name)
        buffers[f"{name}_first"] = np.ascontiguousarray(lists.offsets, dtype=np.int64)
        buffers[f"{name}_of"] = np.ascontiguousarray(lists.values, dtype=np.int64)
    counts = {name: getattr(activities, name) for name in COUNTS}
    struct = ActivitiesStruct(**counts, **{name: each.ctypes.data for name, each in buffers.items()})
    starts = np.zeros(activities.count)
    ends = np.zeros(activities.count)
    causes = np.zeros(activities.count, dtype=np.int64)
    ended = np.zeros(activities.count, dtype=np.bool_)
    outputs = (each.ctypes.data for each in (starts, ends, causes, ended))
    if library.planner_clock(ctypes.byref(struct), *outputs):
        raise MemoryError(f"out of memory with {activities.count} activities")
    return ActivityTimes(starts, ends, causes), ended
