"""Runs whose steps somebody timed and published: what each ran, without what was measured.

Shipped in `profiles/measured.yaml` as far as coefficients were fitted to them, so that a prediction can name the one
that it is nearest to.
"""

from functools import lru_cache
from typing import ClassVar

from planner import files
from planner.specs.base import Positive, Spec
from planner.specs.framework.own_runs import MeasuredRun
from planner.specs.library import shipped_folder

FILE = "measured.yaml"


class MeasuredRuns(Spec, kw_only=True):
    """A file `profiles/measured.yaml`."""

    FORMAT: ClassVar[str] = "planner.measured/1"
    format: str
    date: str
    tflops: dict[str, Positive]  # by device: its peak in 16 bits
    runs: dict[str, tuple[MeasuredRun, ...]]  # by source, each once


@lru_cache(maxsize=1)
def shipped_runs() -> MeasuredRuns:
    """The runs that shipped coefficients were fitted to. Raises InputError."""
    return files.read(shipped_folder() / FILE, MeasuredRuns)
