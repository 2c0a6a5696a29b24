"""Drift of runs: whether a plan's last run took as long as predicted, and as long as the runs before."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from planner.ledger.run_ledger import RunEntry


@dataclass(frozen=True, slots=True)
class RunDrift:
    """The runs of one plan on one machine, by the ratio of measured to predicted seconds."""

    plan: str
    machine: str
    runs: tuple[RunEntry, ...]  # in order of time

    @property
    def last_run(self) -> RunEntry:
        """The latest run."""
        return self.runs[-1]

    @property
    def earlier_ratio(self) -> float | None:
        """Median ratio of the runs before the last; None without any."""
        return median(entry.ratio for entry in self.runs[:-1]) if len(self.runs) > 1 else None

    @property
    def missed(self) -> bool:
        """Whether the last run is outside the 80 % interval of its prediction."""
        return outside_interval(self.last_run.ratio, 1.0, self.last_run.spread)

    @property
    def drifted(self) -> bool:
        """Whether the last run's ratio differs from those before by more than the predicted spread."""
        return self.earlier_ratio is not None and outside_interval(
            self.last_run.ratio, self.earlier_ratio, self.last_run.spread
        )


def outside_interval(ratio: float, center: float, spread: float) -> bool:
    """Whether a ratio is outside center·e^±spread."""
    return abs(math.log(ratio / center)) > spread


def drift_by_plan(entries: Iterable[RunEntry]) -> list[RunDrift]:
    """Drift of each plan name and machine, sorted. A plan that was solved again stays comparable by its ratio."""
    runs: dict[tuple[str, str], list[RunEntry]] = defaultdict(list)
    for entry in entries:
        runs[entry.plan, entry.machine].append(entry)
    return [
        RunDrift(plan, machine, tuple(sorted(found, key=lambda entry: entry.when)))
        for (plan, machine), found in sorted(runs.items())
    ]
