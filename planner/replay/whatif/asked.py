"""What somebody asks of a replay, as it is typed: `gemm=0.5`, `2x`, `layers=2x`, `inter-stream`."""

import re
from typing import NamedTuple

from planner.errors import InputError

FACTOR = re.compile(r"(\d+(?:\.\d*)?|\.\d+)x?")
SMALLEST, LARGEST = 1e-3, 1e3


class Asked(NamedTuple):
    """By option."""

    scale: tuple[str, ...] = ()
    bandwidth: str | None = None
    settings: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    fuse: tuple[str, ...] = ()


def factor(text: str, where: str) -> float:
    """`2x` or `0.5`. Raises InputError."""
    found = FACTOR.fullmatch(text.strip())
    value = float(found.group(1)) if found else 0.0
    if not SMALLEST <= value <= LARGEST:
        fix = f"a number from {SMALLEST:g} to {LARGEST:g}, such as 2x or 0.5"
        raise InputError(f"`{text}` is no factor", where=where, fix=fix)
    return value


def pair(text: str, where: str, example: str) -> tuple[str, str]:
    """`gemm=0.5` as ("gemm", "0.5"); a pattern may hold equals signs. Raises InputError."""
    name, equals, value = text.rpartition("=")
    if not (name and equals and value):
        raise InputError(f"`{text}` says nothing", where=where, fix=f"as in {where} {example}")
    return name, value
