"""Rank correlation of predicted and measured strategies, and the cost of choosing the predicted best."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median

from planner.ledger.predicted_records import PredictedRecord
from planner.published import PublishedCase

LEAST_STRATEGIES = 4  # least strategies of a ranked group: fewer are in order by chance


@dataclass(frozen=True, slots=True)
class RankedGroup:
    """Ranking of one group: strategies that a source measured on one job."""

    source: str
    group: str
    strategies: int
    spearman: float
    best_pick_loss: float  # measured cost of the predicted best over the measured best, minus 1


CostPairs = list[tuple[float, float]]  # predicted, measured


def rank_groups(records: Iterable[PredictedRecord]) -> list[RankedGroup]:
    """Every group of at least four distinct timed configurations, sorted by name."""
    return [
        RankedGroup(source, group, len(pairs), spearman(pairs), best_pick_loss(pairs))
        for (source, group), pairs in grouped_costs(records).items()
        if len(pairs) >= LEAST_STRATEGIES and len({measured for _, measured in pairs}) > 1
    ]


def grouped_costs(records: Iterable[PredictedRecord]) -> dict[tuple[str, str], CostPairs]:
    """The distinct timed configurations of every group, by source and group, sorted by name. A configuration that was
    measured several times counts once, by its median.
    """
    groups: dict[tuple[str, str], dict[Hashable, list[PredictedRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        origin = record.case.origin
        if record.seconds is not None and origin.group_id:
            groups[origin.source, origin.group_id][configuration_key(record.case)].append(record)
    return {
        name: [
            (
                median(record.predicted_cost for record in same),
                median(record.cost for record in same if record.cost is not None),
            )
            for same in by_configuration.values()
        ]
        for name, by_configuration in sorted(groups.items())
    }


def configuration_key(case: PublishedCase) -> Hashable:
    """Key of a configuration: cases that share it are repeated measurements."""
    return case.module, case.setup, case.device, case.software, case.network, case.settings_text


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's rank correlation: Pearson's, of ranks in which ties share their mean rank. In [-1, 1].

    It is 0 where all predictions are equal.
    """
    first, second = (mean_ranks(values) for values in zip(*pairs, strict=True))
    middle = (len(pairs) - 1) / 2
    covariance = sum((a - middle) * (b - middle) for a, b in zip(first, second, strict=True))
    variances = sum((a - middle) ** 2 for a in first) * sum((b - middle) ** 2 for b in second)
    return covariance / sqrt(variances) if variances else 0.0


def mean_ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value from 0; ties have their mean rank."""
    positions: dict[float, list[int]] = defaultdict(list)
    for position, value in enumerate(sorted(values)):
        positions[value].append(position)
    return [fmean(positions[value]) for value in values]


def best_pick_loss(pairs: Sequence[tuple[float, float]]) -> float:
    """Measured cost of the predicted best over the measured best, minus 1; equal predictions count with their mean."""
    least = min(predicted for predicted, _ in pairs)
    picked = fmean(measured for predicted, measured in pairs if predicted == least)
    return picked / min(measured for _, measured in pairs) - 1
