"""An accuracy report as one JSON object, whose keys are a stable interface; errors are fractions."""

from typing import Any

from planner.ledger.account import Account, Figures
from planner.ledger.row import Row
from planner.published.case import Origin, Skipped

PROMISED = (
    "rows_used",
    "rows_defaulted",
    "rows_skipped",
    "time_median_error",
    "time_p90_error",
    "bias",
    "spearman_median",
    "best_pick_loss",
    "memory_median_error",
    "oom_recall",
    "oom_precision",
    "coverage80",
)


def answer(account: Account, with_rows: bool = False) -> dict[str, Any]:
    """`{overall, sources}`, and with `with_rows` also `rows`: every record, skipped ones too."""
    objects: dict[str, Any] = {
        "overall": promised(account.overall),
        "sources": {name: promised(figures) for name, figures in account.sources.items()},
    }
    return {**objects, "rows": rows(account)} if with_rows else objects


def promised(figures: Figures) -> dict[str, Any]:
    """The figures that are part of the interface."""
    return {name: getattr(figures, name) for name in PROMISED}


def rows(account: Account) -> list[dict[str, Any]]:
    """An object for each record, in the order of the files."""
    all_rows = [*map(used, account.rows), *map(left, account.skipped)]
    return sorted(all_rows, key=lambda record: (record["file"], record["line"], record["source"], record["row"]))


def used(record: Row) -> dict[str, Any]:
    case, predicted = record.case, record.predicted
    return {
        **origin(case.origin),
        "seconds": case.seconds,
        "predicted_seconds": predicted.seconds,
        "spread": predicted.spread,
        "memory_bytes": case.memory_bytes,
        "predicted_memory_bytes": predicted.memory_bytes,
        "oom": case.oom,
        "oom_probability": predicted.oom_probability,
        "priced_by": predicted.source,
        "defaulted": [*case.defaulted],
        "assumed": [*case.assumed],
    }


def left(skipped: Skipped) -> dict[str, Any]:
    return {**origin(skipped.origin), "skipped": skipped.reason, "detail": skipped.detail}


def origin(origin: Origin) -> dict[str, Any]:
    return {
        "source": origin.source,
        "row": origin.row,
        "group": origin.group,
        "file": origin.file,
        "line": origin.line,
    }
