"""The compiled fill.c; None where it was not built with the package, and fill_python.py does the same, slower."""

import ctypes
from pathlib import Path

LIBRARY_PATH = Path(__file__).with_name("libfill.so")


class Shapes(ctypes.Structure):
    """The struct `Shapes` of fill.c; pointers are addresses of numpy arrays."""

    _fields_ = [
        ("shapes", ctypes.c_int64),
        ("nodes", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("degree", "room", "first_node", "end_node", "constant")),
        *((name, ctypes.c_void_p) for name in ("node_first", "node_size")),
    ]


def load_library() -> ctypes.CDLL | None:
    """The library with its signature declared; None where there is none."""
    try:
        library = ctypes.CDLL(str(LIBRARY_PATH))
    except OSError:
        return None
    library.planner_fill.restype = ctypes.c_int64
    library.planner_fill.argtypes = [
        *[ctypes.c_int64] * 2,
        *[ctypes.c_void_p] * 4,
        ctypes.POINTER(Shapes),
        *[ctypes.c_void_p] * 5,
    ]
    return library


FILL_LIBRARY = load_library()
