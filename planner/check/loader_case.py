"""Checks stored shares of a data loader: they are divided again, and their seconds are what its stages give."""

from collections.abc import Iterator
from pathlib import Path

from planner import files
from planner.check.finding import Finding, Tolerances, classify_value
from planner.errors import PlannerError
from planner.specs.base import with_fields
from planner.specs.loader import LoaderFile
from planner.strategies import divide_loader

LOADER = "loader.yaml"


def divided_today(stored: LoaderFile) -> LoaderFile:
    """The loader of a file with the shares that are decided today; as it is where it has none."""
    return with_fields(stored, shares=divide_loader(stored).shares) if stored.shares else stored


def loader_findings(path: Path, tolerances: Tolerances) -> Iterator[Finding]:
    """What is wrong with stored shares, or is another today."""
    try:
        stored = files.read(path, LoaderFile)
    except PlannerError as error:
        yield Finding("illegal", error.where or str(path), None, None, error.message)
        return
    today = divided_today(stored).shares
    if stored.shares is None or today is None:  # what a job beside it reads
        return
    category = classify_value(stored.shares.seconds, today.seconds, tolerances.value)
    if category:
        change = f"seconds of an item: {today.seconds / stored.shares.seconds - 1:+.2%}"
        yield Finding(category, "shares.seconds", stored.shares.seconds, today.seconds, change)
    elif today != stored.shares:
        yield Finding("drift", "shares", None, None, "other shares, or other statements of them, today")
