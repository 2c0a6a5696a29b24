"""Options of what-ifs as they are typed: `gemm=0.5`, `2x`, `layers=2x`, `inter-stream`."""

import re
from typing import NamedTuple

from planner.errors import InputError

FACTOR = re.compile(r"(\d+(?:\.\d*)?|\.\d+)x?")
MIN_FACTOR, MAX_FACTOR = 1e-3, 1e3


class WhatIfOptions(NamedTuple):
    """The options of `planner replay` that change something, as typed."""

    scale: tuple[str, ...] = ()
    bandwidth: str | None = None
    settings: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    fuse: tuple[str, ...] = ()


def parse_factor(text: str, where: str) -> float:
    """Parse `2x` or `0.5`; `where`: the option, for errors. Raises InputError."""
    found = FACTOR.fullmatch(text.strip())
    value = float(found.group(1)) if found else 0.0
    if not MIN_FACTOR <= value <= MAX_FACTOR:
        fix = f"a number from {MIN_FACTOR:g} to {MAX_FACTOR:g}, such as 2x or 0.5"
        raise InputError(f"`{text}` is not a factor", where=where, fix=fix)
    return value


def parse_assignment(text: str, where: str, example: str) -> tuple[str, str]:
    """Split `gemm=0.5` into ("gemm", "0.5"); the name may contain equals signs. Raises InputError."""
    name, equals, value = text.rpartition("=")
    if not (name and equals and value):
        raise InputError(f"`{text}` is not of the form NAME=VALUE", where=where, fix=f"as in {where} {example}")
    return name, value
