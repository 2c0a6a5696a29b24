"""Accuracy of predictions for a folder of published records."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from planner.calibrate import median_after_one_run
from planner.errors import InputError
from planner.ledger.accuracy import AccuracyReport, accuracy_report
from planner.ledger.predicted_records import Predictor, predict_records
from planner.published import read_published

HEADER_LINE = 1  # line number; a record skipped at this line stands for the whole file


def accuracy_of_folder(directory: Path, sources: Sequence[str], predict: Predictor) -> AccuracyReport:
    """Accuracy over every record in `directory`, or of these sources only. Raises InputError."""
    if not os.path.isdir(directory):
        raise InputError("not a folder", where=str(directory), fix="give a folder of CSV files")
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
