"""An accuracy report as one JSON object, whose keys are a stable interface; errors are fractions."""

from typing import Any

from planner.ledger.accuracy import AccuracyFigures, AccuracyReport
from planner.ledger.predicted_records import PredictedRecord
from planner.published import RecordOrigin, SkippedRecord

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
    objects = [*map(predicted_object, account.records), *map(skipped_object, account.skipped)]
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


def skipped_object(skipped: SkippedRecord) -> dict[str, Any]:
    return {**origin_object(skipped.origin), "skipped": skipped.reason, "detail": skipped.detail}


def origin_object(origin: RecordOrigin) -> dict[str, Any]:
    return {
        "source": origin.source,
        "row": origin.record_id,
        "group": origin.group_id,
        "file": origin.file,
        "line": origin.line,
    }
