"""Whether the error that is a layout's own grows with its distance from what was measured, and what choices cost.

A group is two or more configurations that one source measured of one job, predicted by coefficients without the source.
The error of one against the mean of its group's others is what no common factor explains; its excess is by how many
steps it is farther than the nearest of its group from the runs of other sources. The width of a step is the most likely
one of own errors whose deviation is a constant and so much for each step beyond the first, independent, beside an
offset that the group has in common; a group counts as one, whatever its size.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, log, sqrt
from pathlib import Path
from statistics import fmean, median, stdev

import numpy as np

from benchmarks.published_folder import published_folder
from benchmarks.registry import Figures
from planner.calibrate.fit_files import peak_tflops, run_of_case
from planner.ledger.predicted_records import PredictedRecord
from planner.ledger.strategy_ranking import LEAST_STRATEGIES, best_pick_loss, configuration_key, spearman
from planner.scoring.expected_seconds import HALF_OF_80, doubt_at
from planner.scoring.nearest_run import FREE_STEPS, NearestRun, nearest_of
from planner.specs.base import with_fields
from planner.specs.framework.own_runs import MeasuredRun
from planner.specs.shipped_runs import shipped_runs
from planner.workflows.evidence import published_account

CLOSE = 0.05  # of the best
EXCESSES = (0.0, 1.0)  # steps up to which configurations are counted together; more: the rest
CONSTANTS, WIDTHS = np.linspace(0.01, 0.3, 59), np.linspace(0.0, 0.2, 101)  # of deviations, looked at


@dataclass(frozen=True, slots=True)
class Configuration:
    """One configuration of a group, in rank-seconds per token."""

    predicted: float
    measured: float
    nearest: NearestRun  # of other sources

    @property
    def error(self) -> float:
        """Of the prediction, as a logarithm."""
        return log(self.predicted / self.measured)

    @property
    def expected(self) -> float:
        """The mean of what is predicted, by its own error."""
        return self.predicted * doubt_at(self.nearest)


Group = Sequence[Configuration]


def run(data: Path | None) -> Iterator[Figures]:
    folder = published_folder(data)
    if folder is None:
        return
    groups = configuration_groups(published_account(folder).records)
    yield from errors_by_excess(groups)
    yield {"half_width_a_step": round(likeliest_width(groups), 3)}
    for least in (LEAST_STRATEGIES, 2):
        yield picks([group for group in groups if len(group) >= least])


def configuration_groups(records: Sequence[PredictedRecord]) -> list[Group]:
    """Groups of configurations, repeated measurements by their median."""
    jobs: dict[Hashable, dict[Hashable, list[PredictedRecord]]] = {}
    for record in records:
        origin = record.case.origin
        if record.cost is not None and origin.group_id:
            of_job = jobs.setdefault((origin.source, origin.group_id), {})
            of_job.setdefault(configuration_key(record.case), []).append(record)
    return [[*map(configuration, of_job.values())] for of_job in jobs.values() if len(of_job) > 1]


def configuration(same: Sequence[PredictedRecord]) -> Configuration:
    """The repeated measurements of one configuration."""
    case = same[0].case
    return Configuration(
        median(record.predicted_cost for record in same),
        median(record.cost or 0.0 for record in same),
        nearest_elsewhere(case.origin.source, run_of_case(case)),
    )


@cache
def nearest_elsewhere(source: str, run: MeasuredRun) -> NearestRun:
    """The run of another source that is nearest."""
    known = shipped_runs()
    others = {name: runs for name, runs in known.runs.items() if name != source}
    return nearest_of(run, peak_tflops(run.device), with_fields(known, runs=others))


def errors_by_excess(groups: Sequence[Group]) -> Iterator[Figures]:
    """Own errors of configurations that are as near as any of their group, a step farther, and more."""
    every = [each for group in groups for each in own_errors(group)]
    for low, high in zip((-inf, *EXCESSES), (*EXCESSES, inf), strict=True):
        found = [abs(error) for excess, error in every if low < excess <= high]
        figures = {"configurations": len(found), "error_median": round(median(found), 4)}
        yield {
            "excess_steps_up_to": high if high < inf else None,
            **figures,
            "error_80": round(float(np.quantile(found, 0.8)), 4),
        }
    yield {"rank_correlation": round(spearman([(excess, abs(error)) for excess, error in every]), 3)}


def own_errors(group: Group) -> list[tuple[float, float]]:
    """Of each configuration, steps that it is farther than the nearest, and its error against the mean of the others,
    of the variance that one alone has.
    """
    errors, count = [each.error for each in group], len(group)
    nearest = min(each.nearest.distance for each in group)
    return [
        (each.nearest.distance - nearest, (error - fmean(errors)) * sqrt(count / (count - 1)))
        for each, error in zip(group, errors, strict=True)
    ]


def likeliest_width(groups: Sequence[Group]) -> float:
    """The half-width of an 80 % interval that a step adds, of all pairs of a constant and a width."""
    found = {
        width: min(sum(unlikelihood(group, constant, width) for group in groups) for constant in CONSTANTS)
        for width in WIDTHS
    }
    return float(min(found, key=lambda width: found[width])) * HALF_OF_80


def unlikelihood(group: Group, constant: float, width: float) -> float:
    """Minus the logarithm of the restricted likelihood of a group's errors, per degree of freedom."""
    errors = np.array([each.error for each in group])
    steps = np.array([max(0.0, each.nearest.distance - FREE_STEPS) for each in group])
    variance = constant**2 + (width * steps) ** 2
    off = errors - np.average(errors, weights=1.0 / variance)
    total = np.log(variance).sum() + np.log((1.0 / variance).sum()) + (off**2 / variance).sum()
    return float(total) / 2.0 / (len(group) - 1)


def picks(groups: Sequence[Group]) -> Figures:
    """What the predicted quickest costs, and the one that is expected to be, over the measured best; and by how much
    predictions of the first are lower than those of its group, as a mean of logarithms.
    """
    losses = [best_pick_loss([(each.predicted, each.measured) for each in group]) for group in groups]
    expected = [best_pick_loss([(each.expected, each.measured) for each in group]) for group in groups]
    optimism = [
        fmean(each.error for each in group) - min(group, key=lambda each: each.predicted).error for group in groups
    ]
    return {
        "groups": len(groups),
        "of_at_least": min(map(len, groups)),
        "close_by_prediction": round(fmean(loss <= CLOSE for loss in losses), 4),
        "close_as_expected": round(fmean(loss <= CLOSE for loss in expected), 4),
        "loss_by_prediction": round(fmean(losses), 4),
        "loss_as_expected": round(fmean(expected), 4),
        "picks_that_differ": sum(abs(one - other) > 1e-12 for one, other in zip(losses, expected, strict=True)),
        "optimism": round(fmean(optimism), 4),
        "its_standard_error": round(stdev(optimism) / sqrt(len(groups)), 4),
    }
