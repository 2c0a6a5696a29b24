"""Do runs of a plan still take what was predicted, and what they took before?"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from planner.ledger.own import Entry


@dataclass(frozen=True, slots=True)
class Drift:
    """The runs of one plan on one machine, by the ratio of measured to predicted seconds."""

    plan: str
    machine: str
    runs: tuple[Entry, ...]  # in order of time

    @property
    def last(self) -> Entry:
        return self.runs[-1]

    @property
    def before(self) -> float | None:
        """Median ratio of the runs before the last; None: there were none."""
        return median(entry.ratio for entry in self.runs[:-1]) if len(self.runs) > 1 else None

    @property
    def missed(self) -> bool:
        """The last run left the interval that was predicted for it."""
        return beyond(self.last.ratio, 1.0, self.last.spread)

    @property
    def drifted(self) -> bool:
        """The last run is further from those before than the prediction's interval is wide: something changed."""
        return self.before is not None and beyond(self.last.ratio, self.before, self.last.spread)


def beyond(ratio: float, center: float, spread: float) -> bool:
    return abs(math.log(ratio / center)) > spread


def drift(entries: Iterable[Entry]) -> list[Drift]:
    """Per plan (by name) and machine, by name. A plan solved again is predicted again: its ratio stays comparable."""
    runs: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        runs[entry.plan, entry.machine].append(entry)
    return [
        Drift(plan, machine, tuple(sorted(found, key=lambda entry: entry.when)))
        for (plan, machine), found in sorted(runs.items())
    ]
