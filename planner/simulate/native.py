"""The clock compiled when the package was built (clock.c); where it was not, clock.py does the same, slower."""

import ctypes
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.simulate import clock
from planner.simulate.activities import Activities, Lists, Times
from planner.simulate.sound import require_sound

LIBRARY = Path(__file__).with_name("libclock.so")
COUNTS = ("count", "lane_count", "link_count", "store_count")
FLOATS = ("seconds", "share", "bytes", "bandwidth", "stock", "taken", "given")
NUMBERS = ("queued_by", "sharer")
LISTS = ("lanes", "after", "links", "takes", "gives")


class Struct(ctypes.Structure):
    """`Activities` of clock.c; pointers are addresses of numpy arrays."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in COUNTS),
        *((name, ctypes.c_void_p) for name in FLOATS + NUMBERS),
        *((f"{name}_{part}", ctypes.c_void_p) for name in LISTS for part in ("first", "of")),
    ]


def load() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    library.planner_clock.restype = ctypes.c_int64
    library.planner_clock.argtypes = [ctypes.POINTER(Struct), *[ctypes.c_void_p] * 4]
    return library


LIB = load()


def run(activities: Activities) -> tuple[Times, NDArray[np.bool_]]:
    """When everything happens, and what of it happened at all. Raises InputError when the activities make no sense."""
    require_sound(activities)
    return compiled(LIB, activities) if LIB else clock.run(activities)


def compiled(library: ctypes.CDLL, of: Activities) -> tuple[Times, NDArray[np.bool_]]:
    """By clock.c. Raises MemoryError."""
    kept: dict[str, NDArray[np.float64] | NDArray[np.int64]] = {}  # alive while the library reads them
    for name in FLOATS:
        kept[name] = np.ascontiguousarray(getattr(of, name), dtype=np.float64)
    for name in NUMBERS:
        kept[name] = np.ascontiguousarray(getattr(of, name), dtype=np.int64)
    for name in LISTS:
        lists: Lists = getattr(of, name)
        kept[f"{name}_first"] = np.ascontiguousarray(lists.first, dtype=np.int64)
        kept[f"{name}_of"] = np.ascontiguousarray(lists.of, dtype=np.int64)
    counts = zip(COUNTS, (of.count, of.lane_count, len(of.bandwidth), len(of.stock)), strict=True)
    struct = Struct(**dict(counts), **{name: each.ctypes.data for name, each in kept.items()})
    starts, ends, causes = np.zeros(of.count), np.zeros(of.count), np.zeros(of.count, dtype=np.int64)
    ended = np.zeros(of.count, dtype=np.bool_)
    found = (each.ctypes.data for each in (starts, ends, causes, ended))
    if library.planner_clock(ctypes.byref(struct), *found):
        raise MemoryError(f"no memory for {of.count} activities")
    return Times(starts, ends, causes), ended
