"""From how many steps on, and from which mix on, other layouts repay the restart that they take.

Between two mixes of a schedule that follow each other, the layouts that were chosen for all are kept, or the run is
stopped, its checkpoint written and read, and started with the layouts that are quickest at the second mix. That repays
R seconds after R / (s_kept − s_quickest) steps. At mixes between, the quickest known layouts are the best ones of any
mix of the schedule.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil

from planner.specs.base import Share, Spec
from planner.specs.workload.mix_schedule import MixPart

RESTART_SECONDS = 600.0  # assumed: stop, write and read a checkpoint, start; `--restart-s` says another
CLOSE = 1e-6  # share of a step: a smaller difference is none


class MixPoint(Spec, omit_defaults=False):
    """The kept layouts at a mix, beside the quickest known ones."""

    mix: str
    share: Share  # of samples that are multimodal
    kept_seconds: float | None  # of a step; None: they do not fit there
    least_seconds: float
    regret: float | None
    quickest: int  # which candidate it is


class Switch(Spec, omit_defaults=False):
    """Two mixes of a schedule that follow each other, and whether other layouts from the second on repay a restart."""

    before: str
    after: str
    saved_seconds: float  # of each step at the second mix
    repaid_after: int | None  # steps; None: nothing is saved
    steps: float | None  # that the schedule has at the second mix
    repays: bool | None  # None: the schedule has no steps
    from_mix: str | None  # on the way from the first to the second, from which on it would, with that many steps


def switches(
    schedule: Sequence[MixPart], points: Mapping[float, MixPoint], restart_seconds: float
) -> tuple[Switch, ...]:
    """The switches of a schedule; `points`: by share, mixes of the schedule and others between."""
    found = []
    for before, after in pairwise(schedule):
        at = points[after.share]
        repaid = steps_to_repay(at, restart_seconds)
        found.append(
            Switch(
                before=before.mix,
                after=after.mix,
                saved_seconds=saved_seconds(at),
                repaid_after=repaid,
                steps=after.steps,
                repays=None if after.steps is None else repaid is not None and after.steps >= repaid,
                from_mix=from_mix(way(before, after, points), after.steps, restart_seconds),
            )
        )
    return tuple(found)


def saved_seconds(point: MixPoint) -> float:
    """Seconds of each step that the quickest layouts save; nothing where the difference is none."""
    saved = (point.kept_seconds or point.least_seconds) - point.least_seconds
    return saved if saved > CLOSE * point.least_seconds else 0.0


def steps_to_repay(point: MixPoint, restart_seconds: float) -> int | None:
    """The fewest steps at a mix after which a restart is repaid: 0 where the kept layouts cannot run there at all; None
    where nothing is saved.
    """
    if point.kept_seconds is None:
        return 0
    saved = saved_seconds(point)
    return ceil(restart_seconds / saved) if saved else None


def way(before: MixPart, after: MixPart, points: Mapping[float, MixPoint]) -> list[MixPoint]:
    """The points behind a mix up to the next one, in that order."""
    low, high = sorted((before.share, after.share))
    between = [points[share] for share in sorted(points) if low <= share <= high and share != before.share]
    return between if after.share > before.share else between[::-1]


def from_mix(points: Sequence[MixPoint], steps: float | None, restart_seconds: float) -> str | None:
    """The first of some mixes from which on each repays a restart within so many steps; None where the last does not,
    or no steps are known.
    """
    found = None
    for point in reversed(points):
        needed = steps_to_repay(point, restart_seconds)
        if steps is None or needed is None or steps < needed:
            break
        found = point.mix
    return found
