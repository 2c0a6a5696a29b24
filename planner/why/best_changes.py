"""The best layouts of each part of a schedule of mixes, where a change of layouts takes a restart.

The least seconds of a run up to a part, by the layouts that it ends with, from those up to the part before
(Bellman 1957):

    T(part, layouts) = steps · seconds + min(T(part − 1, layouts), min over others T(part − 1, others) + R)
"""

from collections.abc import Mapping, Sequence

from planner.specs.base import Spec
from planner.specs.workload.mix_schedule import MixPart
from planner.why.mix_regret import Seconds, total

Run = tuple[float, int, tuple[int, ...]]  # seconds, restarts, and the layouts of each part


class Changes(Spec, omit_defaults=False):
    """A run of a whole schedule: with the chosen layouts throughout, and with the best ones of each part."""

    kept_seconds: float  # of all steps
    least_seconds: float  # of all steps and restarts
    layouts: tuple[int, ...]  # of each part of the schedule, which candidate
    restarts: int


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
    found = {}
    for number, each in part.items():
        before = min(changed, runs[number]) if number in runs else changed
        found[number] = (before[0] + each, before[1], (*before[2], number))
    return found


def column(table: Sequence[Seconds], at: int) -> Seconds:
    """What each candidate takes at one mix."""
    return tuple(seconds[at] for seconds in table)
