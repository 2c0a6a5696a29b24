"""What a run was whose steps somebody timed, and how far two are apart."""

from math import log2
from typing import NamedTuple

DEGREES = ("ranks", "tp", "pp", "cp", "ep", "seq", "billions")  # half a step away for each doubling
KINDS = ("software", "dtype", "experts", "zero")  # one step where they differ
OTHER_DEVICE = 0.5  # a device of the same peak
JOB_FACTS = frozenset({"device", "dtype", "experts", "ranks", "seq", "billions"})  # those that a job says before a plan


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


def steps_apart(one: MeasuredRun, other: MeasuredRun, doublings: float) -> dict[str, float]:
    """By fact in which two runs differ, how far they are apart in it. `doublings`: between their devices' peaks."""
    found = {name: abs(log2(getattr(one, name) / getattr(other, name))) / 2.0 for name in DEGREES}
    found |= {name: float(getattr(one, name) != getattr(other, name)) for name in KINDS}
    found["device"] = OTHER_DEVICE + doublings if one.device != other.device else 0.0
    return {name: far for name, far in found.items() if far}
