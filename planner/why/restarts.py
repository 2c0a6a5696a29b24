"""From how many steps on, and from which mix on, other layouts repay the restart that they take.

Between two mixes of a schedule that follow each other, the layouts that were chosen for all are kept, or the run is
stopped, its checkpoint written and read, and started with the layouts that are quickest at the second mix. That repays
R seconds after R / (s_kept − s_quickest) steps. At mixes between, the quickest known layouts are the best ones of any
mix of the schedule.

Over a whole schedule, the least seconds of a run up to a part, by the layouts that it ends with, follow from those up
to the part before (Bellman 1957):

    T(part, layouts) = steps · seconds + min(T(part − 1, layouts), min over others T(part − 1, others) + R)

R is what a restart takes.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil

from planner.specs.base import Share, Spec
from planner.specs.workload.mix_schedule import MixPart
from planner.why.mix_regret import Seconds, total

RESTART_SECONDS = 600.0  # assumed: stop, write and read a checkpoint, start; `--restart-s` says another
Run = tuple[float, int, tuple[int, ...]]  # seconds, restarts, and the layouts of each part
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


class Changes(Spec, omit_defaults=False):
    """A run of a whole schedule: with the chosen layouts throughout, and with the best ones of each part."""

    kept_seconds: float  # of all steps
    least_seconds: float  # of all steps and restarts
    layouts: tuple[int, ...]  # of each part of the schedule, which candidate
    restarts: int


def switches(
    schedule: Sequence[MixPart], points: Mapping[float, MixPoint], restart_seconds: float
) -> tuple[Switch, ...]:
    """The switches of a schedule; `points`: by share, mixes of the schedule and others between."""
    every = []
    for before, after in pairwise(schedule):
        at = points[after.share]
        repaid = steps_to_repay(at, restart_seconds)
        every.append(
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
    return tuple(every)


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
    first = None
    for point in reversed(points):
        needed = steps_to_repay(point, restart_seconds)
        if steps is None or needed is None or steps < needed:
            break
        first = point.mix
    return first


def best_changes(
    schedule: Sequence[MixPart], mixes: Sequence[MixPart], table: Sequence[Seconds], restart_seconds: float
) -> Changes | None:
    """The quickest run, of equals one with fewer restarts; None where the schedule has no steps. `table`: what each
    candidate takes at each of `mixes`, the chosen ones first.
    """
    steps = [part.steps for part in schedule if part.steps is not None]
    if len(steps) < len(schedule):
        return None
    shares = [mix.share for mix in mixes]
    places = [shares.index(part.share) for part in schedule]
    runs: dict[int, Run] = {}
    for at, count in zip(places, steps, strict=True):
        part = {number: each * count for number, each in enumerate(column(table, at)) if each is not None}
        runs = continued(runs, part, restart_seconds) if runs else {n: (each, 0, (n,)) for n, each in part.items()}
    seconds, restarts, layouts = min(runs.values())
    kept = [table[0][at] or 0.0 for at in places]
    return Changes(kept_seconds=total(kept, steps), least_seconds=seconds, layouts=layouts, restarts=restarts)


def continued(runs: Mapping[int, Run], part: Mapping[int, float], restart_seconds: float) -> dict[int, Run]:
    """Runs up to the next part, by the layouts that they end with; `part`: what it takes with each that fits."""
    seconds, restarts, layouts = min(runs.values())
    changed = (seconds + restart_seconds, restarts + 1, layouts)
    longer = {}
    for number, added in part.items():
        before = min(changed, runs[number]) if number in runs else changed
        longer[number] = (before[0] + added, before[1], (*before[2], number))
    return longer


def column(table: Sequence[Seconds], at: int) -> Seconds:
    """Seconds of a step with each candidate at one mix; None where it does not fit."""
    return tuple(seconds[at] for seconds in table)
