"""What choosing a layout by its predicted time costs: measured time of the predicted quickest over the measured best.

A group is three or more layouts that one source measured of one job: model, cluster, framework, precision, sequence,
batch. Coefficients are fitted without the source, and again with it, as the shipped ones are. vTrain's grid of small
Megatron GPTs on one node is in no fit to published records, and half of its jobs is predicted again by the other half.
Repeated measurements of a layout count by their median. Measured times within 2 % of each other are ties, in Spearman's
correlation and in what counts as the best; a regret is as measured.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from math import exp
from pathlib import Path
from statistics import fmean, median

import numpy as np

from benchmarks import itertime
from benchmarks.published_folder import published_folder
from benchmarks.registry import Figures
from planner import files
from planner.calibrate.coefficients import CoefficientValues
from planner.calibrate.framework_fit import linearised_fit, measured_logs, predicted_seconds
from planner.calibrate.published_fit import held_out_errors
from planner.calibrate.timed_cases import machines_of_cases, timed_cases
from planner.costs import LayoutColumns
from planner.ledger.strategy_ranking import best_pick_loss, spearman
from planner.published import read_published
from planner.published.published_case import PublishedCase

LEAST_LAYOUTS = 3  # of a group
TIE = 0.02  # of measured seconds
JOB_FIELDS = ("ranks", "seq", "batch", "cross_reads", "dtype", "imbalance")  # of a setup: not the layout's


@dataclass(frozen=True, slots=True)
class TimedLayout:
    """One layout of a group, in seconds of a step."""

    case: PublishedCase
    predicted: float
    measured: float


Group = tuple[TimedLayout, ...]


def run(data: Path | None) -> Iterator[Figures]:
    folder = published_folder(data)
    if data is None or folder is None:
        return
    cases = timed_cases(read_published(folder)[0])
    machines = machines_of_cases(cases)
    linearised = linearised_fit(cases, machines)
    fit = linearised.fitted_to(np.ones(len(cases), dtype=np.bool_)).values
    groups: list[Group] = []
    for source in sources_with_groups(cases):
        errors = held_out_errors(linearised, [source]).own
        inside = [n for n, case in enumerate(cases) if case.origin.source == source]
        of_source = [cases[n] for n in inside]
        found = layout_groups(of_source, np.exp(errors[inside] + measured_logs(of_source)).tolist())
        yield from map(group_figures, found)
        groups += found
    yield {"groups_of": "published records, without their source", **over_all(groups)}
    yield {"groups_of": "published records, with their source", **over_all(groups_by(cases, fit))}
    if (data / itertime.FILE).is_file():
        yield from grid_figures(itertime.read(data / itertime.FILE), fit)


def grid_figures(cases: Sequence[PublishedCase], fit: CoefficientValues) -> Iterator[Figures]:
    """The grid of one node by the fit to published records; and half of its jobs by a fit to the other half, as after
    `planner calibrate` on one's own machine.
    """
    found = groups_by(cases, fit)
    yield from map(group_figures, found)
    yield {"groups_of": "the grid of one node, by published records", **over_all(found)}
    jobs = sorted({str(job_key(case)) for case in cases})
    known = set(jobs[::2])
    halves = [[case for case in cases if (str(job_key(case)) in known) == half] for half in (True, False)]
    own = linearised_fit(halves[0], machines_of_cases(halves[0]), full_weight_records=len(cases)).fitted_to().values
    yield {"groups_of": "half of its jobs, by the other half", **over_all(groups_by(halves[1], own))}


def groups_by(cases: Sequence[PublishedCase], fit: CoefficientValues) -> list[Group]:
    """The groups as these coefficients predict them."""
    return layout_groups(cases, predicted_seconds(cases, machines_of_cases(cases), fit).tolist())


def sources_with_groups(cases: Sequence[PublishedCase]) -> list[str]:
    """Sources that measured enough layouts of one job."""
    return sorted({group[0].case.origin.source for group in layout_groups(cases, [1.0] * len(cases))})


def layout_groups(cases: Sequence[PublishedCase], predicted: Sequence[float]) -> list[Group]:
    """The layouts of each job with enough of them; `predicted`: seconds of each case."""
    jobs: dict[Hashable, dict[Hashable, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, case in enumerate(cases):
        jobs[job_key(case)][layout_key(case.setup)].append(number)
    return [
        tuple(
            TimedLayout(
                cases[numbers[0]],
                median(predicted[n] for n in numbers),
                median(cases[n].seconds or 0.0 for n in numbers),
            )
            for numbers in layouts.values()
        )
        for layouts in jobs.values()
        if len(layouts) >= LEAST_LAYOUTS
    ]


def job_key(case: PublishedCase) -> Hashable:
    """Equal for records of one job, whatever its layout."""
    said = case.origin.source, case.origin.group_id, case.device, case.software, case.network
    return *said, files.json_text(case.module), *(getattr(case.setup, name) for name in JOB_FIELDS)


def layout_key(setup: LayoutColumns) -> Hashable:
    """Equal for one layout; sequence parallelism is none without tensor parallelism."""
    values = zip(fields(setup), astuple(setup), strict=True)
    named = {field.name: value for field, value in values if field.compare}
    return tuple((n, v and setup.tp > 1 if n == "sequence_parallel" else v) for n, v in named.items())


def pairs(group: Group) -> list[tuple[float, float]]:
    """Predicted and measured seconds of each layout."""
    return [(each.predicted, each.measured) for each in group]


def tied(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same with measured seconds within 2 % of a run's least made equal to it."""
    made, least = [], 0.0
    for predicted, measured in sorted(pairs, key=lambda pair: pair[1]):
        least = least if measured < least * (1 + TIE) else measured
        made.append((predicted, least))
    return made


def group_figures(group: Group) -> Figures:
    """One group's regret and order."""
    first, quickest = group[0].case, min(group, key=lambda each: each.predicted)
    best = min(group, key=lambda each: each.measured)
    regret = best_pick_loss(pairs(group))
    return {
        "source": first.origin.source,
        "group": first.origin.group_id or f"line {first.origin.line}",
        "gpus": int(first.setup.ranks),
        "layouts": len(group),
        "regret": round(regret, 4),
        "best_or_tied": regret < TIE,
        "spearman": round(spearman(tied(pairs(group))), 3),
        "mean_error": round(fmean(abs(each.predicted / each.measured - 1) for each in group), 4),
        "picked": layout_text(quickest.case.setup),
        "best": layout_text(best.case.setup),
    }


def over_all(groups: Sequence[Group]) -> Figures:
    """Figures over all groups."""
    if not groups:
        return {"groups": 0}
    losses = [best_pick_loss(pairs(group)) for group in groups]
    return {
        "groups": len(groups),
        "layouts": sum(map(len, groups)),
        "regret_median": round(median(losses), 4),
        "regret_mean": round(fmean(losses), 4),
        "regret_worst": round(max(losses), 4),
        "regret_of_guessing": round(fmean(guessing_loss(group) for group in groups), 4),
        "best_or_tied": sum(loss < TIE for loss in losses),
        "spearman_median": round(median(spearman(tied(pairs(group))) for group in groups), 3),
        "error_median": round(
            median(exp(abs(np.log(each.predicted / each.measured))) - 1 for group in groups for each in group), 4
        ),
    }


def guessing_loss(group: Group) -> float:
    """The regret of choosing any of the group's layouts, in the mean."""
    best = min(each.measured for each in group)
    return fmean(each.measured for each in group) / best - 1


def layout_text(setup: LayoutColumns) -> str:
    """What distinguishes a layout, without what is 1 or none."""
    names = ("tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "replica", "micro_batch")
    degrees = [f"{name} {float(value):g}" for name in names if (value := getattr(setup, name)) != 1]
    parts = "+".join(sorted(setup.recomputed_parts))
    recompute = [f"recompute {float(setup.full_recompute):g} {parts}".rstrip()] if setup.full_recompute or parts else []
    return " · ".join([*degrees, f"zero {float(setup.zero):g}", *recompute])
