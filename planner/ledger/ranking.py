"""Does the prediction put strategies in the order in which they were measured, and is its best one the best?"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median

from planner.ledger.row import Row
from planner.published.case import Case

FEWEST = 4  # strategies of a group that is ranked: fewer are in order by chance


@dataclass(frozen=True, slots=True)
class Ranked:
    """One group of strategies that a source tried on one job."""

    source: str
    group: str
    strategies: int
    spearman: float
    best_pick_loss: float  # measured cost of the predicted best over the measured best, less 1


def ranked(rows: Iterable[Row]) -> list[Ranked]:
    """Every group of at least four distinct configurations that were timed, by name.

    A configuration that was measured several times counts once, with its median.
    """
    groups: dict[tuple[str, str], dict[Hashable, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for record in rows:
        origin = record.case.origin
        if record.seconds is not None and origin.group:
            groups[origin.source, origin.group][configuration(record.case)].append(record)
    found = []
    for (source, group), by_configuration in sorted(groups.items()):
        pairs = [
            (
                median(record.predicted_cost for record in same),
                median(record.cost for record in same if record.cost is not None),
            )
            for same in by_configuration.values()
        ]
        if len(pairs) >= FEWEST and len({measured for _, measured in pairs}) > 1:
            found.append(Ranked(source, group, len(pairs), spearman(pairs), best_pick_loss(pairs)))
    return found


def configuration(case: Case) -> Hashable:
    """All that a case says of what was run: what agrees in it was measured again."""
    return case.module, case.setup, case.device, case.software, case.fabric, case.adapters, case.settings


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's rank correlation: Pearson's, of ranks in which ties share their mean rank. In [-1, 1].

    0 where the prediction tells none from another: it orders nothing.
    """
    first, second = (ranks(values) for values in zip(*pairs, strict=True))
    middle = (len(pairs) - 1) / 2
    together = sum((a - middle) * (b - middle) for a, b in zip(first, second, strict=True))
    apart = sum((a - middle) ** 2 for a in first) * sum((b - middle) ** 2 for b in second)
    return together / sqrt(apart) if apart else 0.0


def ranks(values: Sequence[float]) -> list[float]:
    """The place of each value in their order, from 0; ties have the mean of their places."""
    places: dict[float, list[int]] = defaultdict(list)
    for place, value in enumerate(sorted(values)):
        places[value].append(place)
    return [fmean(places[value]) for value in values]


def best_pick_loss(pairs: Sequence[tuple[float, float]]) -> float:
    """What following the prediction costs; of strategies predicted alike, what taking any of them costs on average."""
    least = min(predicted for predicted, _ in pairs)
    picked = fmean(measured for predicted, measured in pairs if predicted == least)
    return picked / min(measured for _, measured in pairs) - 1
