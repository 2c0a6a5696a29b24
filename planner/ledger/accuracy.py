"""Accuracy of predictions for published records, overall and by source; every record is counted or named as skipped.

As JSON a report is one object, whose keys are a stable interface; errors are fractions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from planner.calibrate import median_after_one_run
from planner.errors import InputError
from planner.ledger.predicted_records import PredictedRecord, Predictor, predict_records
from planner.ledger.strategy_ranking import RankedGroup, rank_groups
from planner.published import RecordOrigin, SkippedRecord, read_published

CLOSE_LOSS = 0.05  # a pick that costs at most this much more than the best counts as the best
HEADER_LINE = 1  # line number; a record skipped at this line stands for the whole file
FIGURE_KEYS = (
    "rows_used",
    "rows_defaulted",
    "rows_skipped",
    "left_out_median_error",
    "left_out_p90_error",
    "mean_over_sources",
    "left_out_bias",
    "time_median_error",
    "spearman_median",
    "spearman_mean",
    "best_pick_loss",
    "memory_median_error",
    "oom_recall",
    "oom_precision",
    "coverage80",
)


@dataclass(frozen=True, slots=True)
class AccuracyFigures:
    """Accuracy of a set of records: errors over measured values, None without any; pairs are k of n."""

    rows_used: int
    rows_defaulted: int  # of the used: with blank columns filled from the source's cited defaults
    rows_skipped: dict[str, int]  # by reason, the most frequent first
    time_records: int  # of the used: with measured seconds
    left_out_median_error: float | None  # of time, by coefficients that have not seen the record's source
    left_out_p90_error: float | None
    mean_over_sources: float | None  # of the sources' left-out median errors
    left_out_bias: float | None  # median signed left-out error of time: above 0 is predicted too slow
    time_median_error: float | None  # by the shipped coefficients, which were fitted to many of these records
    coverage80: float | None  # share of measured seconds within the 80 % interval around the left-out ones
    ranked_groups: int  # of at least four strategies
    spearman_median: float | None  # of left-out predictions
    spearman_mean: float | None
    best_pick_loss: float | None  # median: how much slower the predicted best is than the measured best
    best_pick_close: float | None  # share of groups in which that is at most 5 %
    memory_records: int  # of the used: with a measured peak
    memory_median_error: float | None
    oom_recall: tuple[int, int]  # of the records that ran out of memory: those predicted to
    oom_precision: tuple[int, int]  # of the records predicted to run out of memory: those that did

    @property
    def records_read(self) -> int:
        """Used and skipped records."""
        return self.rows_used + sum(self.rows_skipped.values())


@dataclass(frozen=True, slots=True)
class AccuracyReport:
    """Accuracy overall and by source, with the records it rests on."""

    overall: AccuracyFigures
    sources: dict[str, AccuracyFigures]  # by name
    records: tuple[PredictedRecord, ...]  # used, in the order of the files
    skipped: tuple[SkippedRecord, ...]  # in the order of the files
    after_one_run: dict[str, float] = field(default_factory=dict)  # median error of the others after one, by source
    other_files: tuple[SkippedRecord, ...] = ()  # files of another schema: listed, and counted nowhere


def accuracy_report(records: Iterable[PredictedRecord], skipped: Iterable[SkippedRecord]) -> AccuracyReport:
    """The accuracy of these records, in any order, beside those that were skipped."""
    used = tuple(sorted(records, key=lambda record: file_position(record.case.origin)))
    ordered_skips = tuple(sorted(skipped, key=lambda one: (*file_position(one.origin), one.reason, one.detail)))
    groups = rank_groups(used)
    names = sorted({record.case.origin.source for record in used} | {one.origin.source for one in ordered_skips})
    sources = {
        name: accuracy_figures(
            [record for record in used if record.case.origin.source == name],
            [one for one in ordered_skips if one.origin.source == name],
            [group for group in groups if group.source == name],
        )
        for name in names
    }
    return AccuracyReport(accuracy_figures(used, ordered_skips, groups), sources, used, ordered_skips)


def file_position(origin: RecordOrigin) -> tuple[str, int, str, str]:
    """Sort key: the record's position in the files."""
    return origin.file, origin.line, origin.source, origin.record_id


def accuracy_figures(
    records: Sequence[PredictedRecord], skipped: Sequence[SkippedRecord], groups: Sequence[RankedGroup]
) -> AccuracyFigures:
    """The accuracy of one set of records and of the groups in it."""
    errors = [abs(record.time_error) for record in records if record.time_error is not None]
    left_out: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.left_out_error is not None:
            left_out[record.case.origin.source].append(record.left_out_error)
    signed = [error for each in left_out.values() for error in each]
    medians = [median(map(abs, each)) for each in left_out.values()]
    memory = [abs(record.memory_error) for record in records if record.memory_error is not None]
    losses = [group.best_pick_loss for group in groups]
    reasons = Counter(one.reason for one in skipped)
    ooms = [record for record in records if record.case.oom]
    predicted_ooms = [
        record for record in records if record.predicted_oom
    ]  # outcomes are known: those without are skipped
    return AccuracyFigures(
        rows_used=len(records),
        rows_defaulted=sum(bool(record.case.defaulted) for record in records),
        rows_skipped=dict(sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))),
        time_records=len(errors),
        left_out_median_error=median_or_none([*map(abs, signed)]),
        left_out_p90_error=quantile([*map(abs, signed)], 0.9),
        mean_over_sources=fmean(medians) if medians else None,
        left_out_bias=median_or_none(signed),
        time_median_error=median_or_none(errors),
        coverage80=share_true(record.in_interval for record in records if record.in_interval is not None),
        ranked_groups=len(groups),
        spearman_median=median_or_none([group.spearman for group in groups]),
        spearman_mean=fmean(group.spearman for group in groups) if groups else None,
        best_pick_loss=median_or_none(losses),
        best_pick_close=share_true(loss <= CLOSE_LOSS for loss in losses),
        memory_records=len(memory),
        memory_median_error=median_or_none(memory),
        oom_recall=(sum(record.predicted_oom for record in ooms), len(ooms)),
        oom_precision=(sum(record.case.oom for record in predicted_ooms), len(predicted_ooms)),
    )


def median_or_none(values: Sequence[float]) -> float | None:
    """The median, None of nothing."""
    return median(values) if values else None


def quantile(values: Sequence[float], at: float) -> float | None:
    """Quantile by linear interpolation (Hyndman and Fan's type 7), None of nothing."""
    if not values:
        return None
    low, part = divmod((len(values) - 1) * at, 1)
    around = sorted(values)[int(low) : int(low) + 2]
    return around[0] + part * (around[-1] - around[0])


def share_true(held: Iterable[bool]) -> float | None:
    """The share that is true, None of nothing."""
    each = [*held]
    return sum(each) / len(each) if each else None


def accuracy_of_folder(directory: Path, sources: Sequence[str], predict: Predictor) -> AccuracyReport:
    """Accuracy over every record in `directory`, or of these sources only. Raises InputError."""
    cases, not_cases = read_published(directory)
    files = tuple(one for one in not_cases if one.origin.line <= HEADER_LINE)
    skipped = [one for one in not_cases if one.origin.line > HEADER_LINE]
    if not cases and not skipped:
        raise InputError(
            "no published records here",
            where=str(directory),
            fix="give a folder of CSV files with the columns row_id, source_id, model, n_gpus, step_time_s, …",
        )
    if sources:
        require_sources(sources, {one.origin.source for one in cases} | {one.origin.source for one in skipped})
        cases = [case for case in cases if case.origin.source in sources]
        skipped = [one for one in skipped if one.origin.source in sources]
    predicted, unpredicted = predict_records(cases, predict)
    report = accuracy_report(predicted, [*skipped, *unpredicted])
    after = median_after_one_run([record.case for record in predicted])
    return replace(report, after_one_run=after, other_files=files)


def require_sources(wanted: Sequence[str], there: set[str]) -> None:
    """Raises InputError for an unknown source."""
    for name in wanted:
        if name not in there:
            raise InputError(
                f"no source is called `{name}`", where="--source", fix=f"one of {', '.join(sorted(there))}"
            )


def accuracy_json(account: AccuracyReport, with_records: bool = False) -> dict[str, Any]:
    """`{overall, sources}`, and with `with_records` also `rows`: every record, skipped ones too."""
    objects: dict[str, Any] = {
        "overall": figures_object(account.overall),
        "sources": {name: figures_object(figures) for name, figures in account.sources.items()},
        "after_one_run": account.after_one_run,
    }
    return {**objects, "rows": record_objects(account)} if with_records else objects


def figures_object(figures: AccuracyFigures) -> dict[str, Any]:
    """The figures that are part of the interface."""
    return {name: getattr(figures, name) for name in FIGURE_KEYS}


def record_objects(account: AccuracyReport) -> list[dict[str, Any]]:
    """An object for each record, in the order of the files."""
    objects = [*map(predicted_object, account.records)]
    for one in account.skipped:
        objects.append({**origin_object(one.origin), "skipped": one.reason, "detail": one.detail})
    return sorted(objects, key=lambda record: (record["file"], record["line"], record["source"], record["row"]))


def predicted_object(record: PredictedRecord) -> dict[str, Any]:
    case, predicted = record.case, record.prediction
    return {
        **origin_object(case.origin),
        "seconds": case.seconds,
        "predicted_seconds": predicted.seconds,
        "left_out_seconds": predicted.left_out_seconds,
        "spread": predicted.spread,
        "memory_bytes": case.memory_bytes,
        "predicted_memory_bytes": predicted.memory_bytes,
        "oom": case.oom,
        "oom_probability": predicted.oom_probability,
        "priced_by": predicted.source,
        "defaulted": [*case.defaulted],
        "assumed": [*case.assumed],
        "doubts": [*case.doubts],
    }


def origin_object(origin: RecordOrigin) -> dict[str, Any]:
    return dict(zip(("source", "row", "group", "file", "line"), astuple(origin), strict=True))
