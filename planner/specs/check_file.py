"""The file `check.yaml` of a folder of cases: how much worse the plan of each may get."""

from typing import ClassVar

from planner.specs.base import Share, Spec


class Thresholds(Spec):
    """How much worse a plan may get than the stored one; what is left out is as in the folder, or as usual."""

    value: Share | None = None  # of the objective value, relative to it; usual: 2%
    gap: Share | None = None  # of the gap, in points: 1% is from 2% to 3%; usual: 1%
    memory: Share | None = None  # of the fullest rank's peak memory, relative to it; usual: any
    tokens_per_dollar: Share | None = None  # of tokens per dollar, relative to it; usual: any


class CheckFile(Thresholds, kw_only=True):
    """A file of thresholds, `planner.check/1`: `check.yaml` in a folder of cases."""

    FORMAT: ClassVar[str] = "planner.check/1"
    format: str
    cases: dict[str, Thresholds] = {}  # by case, which is the path of its folder: what is another there
