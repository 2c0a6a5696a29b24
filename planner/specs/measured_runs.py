"""Runs whose steps somebody timed and published: what each ran, without what was measured, and how far two are apart.

Shipped in `profiles/measured.yaml` as far as coefficients were fitted to them, so that a prediction can name the one
that it is nearest to.
"""

from functools import lru_cache
from math import log2
from typing import ClassVar, NamedTuple

from planner import files
from planner.specs.base import Positive, Spec
from planner.specs.library import shipped_folder

FILE = "measured.yaml"
DEGREES = ("ranks", "tp", "pp", "cp", "ep", "seq", "billions")  # half a step away for each doubling
KINDS = ("software", "dtype", "experts", "zero")  # one step where they differ
OTHER_DEVICE = 0.5  # a device of the same peak


class MeasuredRun(NamedTuple):
    """What one run was, of the module that is largest."""

    device: str  # a name in profiles/devices
    software: str  # a name in profiles/software
    dtype: str  # of products
    experts: bool  # whether it routes tokens to experts
    zero: int  # 1 also where there is nothing to shard
    ranks: int
    tp: int
    pp: int
    cp: int
    ep: int
    seq: int  # tokens of a sequence
    billions: float  # parameters / 1e9


class MeasuredRuns(Spec, kw_only=True):
    """A file `profiles/measured.yaml`."""

    FORMAT: ClassVar[str] = "planner.measured/1"
    format: str
    date: str
    tflops: dict[str, Positive]  # by device: its peak in 16 bits
    runs: dict[str, tuple[MeasuredRun, ...]]  # by source, each once


@lru_cache(maxsize=1)
def shipped_runs() -> MeasuredRuns:
    """The shipped file. Raises InputError."""
    return files.read(shipped_folder() / FILE, MeasuredRuns)


def steps_apart(one: MeasuredRun, other: MeasuredRun, doublings: float) -> dict[str, float]:
    """By fact in which two runs differ, how far they are apart in it. `doublings`: between their devices' peaks."""
    found = {name: abs(log2(getattr(one, name) / getattr(other, name))) / 2.0 for name in DEGREES}
    found |= {name: float(getattr(one, name) != getattr(other, name)) for name in KINDS}
    found["device"] = OTHER_DEVICE + doublings if one.device != other.device else 0.0
    return {name: far for name, far in found.items() if far}
