"""Journal of samples on disk, one JSON line each, written at once: an interrupted profile resumes from it.

Lines of another machine, other versions or other code are never used, and removed at the next write.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from planner import files
from planner.errors import InputError
from planner.profiling.measurement import MeasuredSample, Measurement, MeasurementKey


class SampleJournal:
    """The samples at `path` that were taken in this environment."""

    def __init__(self, path: Path, environment: str) -> None:
        self.path, self.environment = path, environment
        self.samples: dict[MeasurementKey, MeasuredSample] = {}
        self.stale = False
        for line in _lines(path):
            sample = parse(line, environment)
            if sample is None:
                self.stale = True
            else:
                self.samples[sample.key] = sample

    def missing(self, measurements: Iterable[Measurement]) -> list[Measurement]:
        return [measurement for measurement in measurements if measurement.key not in self.samples]

    def samples_of(self, context: str) -> list[MeasuredSample]:
        """All samples of a context, of whichever run, sorted by key."""
        samples = [sample for sample in self.samples.values() if sample.context == context]
        return sorted(samples, key=lambda sample: sample.key)

    def append(self, sample: MeasuredSample) -> None:
        """Adds a sample; it is on disk when this returns. Raises InputError."""
        if self.stale or not self.path.exists():
            files.write_text(self.path, "".join(self._text(kept) for kept in self.samples.values()))
            self.stale = False
        self.samples[sample.key] = sample
        try:
            with self.path.open("a", encoding="utf-8") as out:
                out.write(self._text(sample))
        except OSError as error:
            raise InputError(
                f"cannot write: {error.strerror}", where=str(self.path), fix="choose another path"
            ) from error

    def _text(self, sample: MeasuredSample) -> str:
        return json.dumps({"environment": self.environment, **asdict(sample)}) + "\n"


def parse(line: str, environment: str) -> MeasuredSample | None:
    """The sample of a line; None when it is of another environment, or incomplete."""
    try:
        fields: dict[str, Any] = json.loads(line)
        if fields.pop("environment") != environment:
            return None
        sizes, values = (tuple(fields.pop(name)) for name in ("sizes", "values"))
        return MeasuredSample(sizes=sizes, values=values, **fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _lines(path: Path) -> list[str]:
    return files.read_text(path).splitlines() if path.exists() else []
