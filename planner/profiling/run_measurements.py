"""Runs measurements on all ranks, combines their time spans into samples, and writes each to the journal at once.

The journal on disk has a JSON line for each sample: an interrupted profile resumes from it. Lines of another machine,
other versions or other code are never used, and removed at the next write.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from planner import files
from planner.errors import InputError
from planner.launch import DeviceKind, launch, usable_cores
from planner.profiling.measurement import (
    COLLECTIVES,
    MeasuredSample,
    Measurement,
    MeasurementKey,
    TimeSpan,
    collective_seconds,
    elapsed_seconds,
)
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype

OnProgress = Callable[[int, int, str, float], None]  # measurements done, in all, text of the last one, seconds left


class SampleJournal:
    """The samples at `path` that were taken in this environment."""

    def __init__(self, path: Path, environment: str) -> None:
        self.path, self.environment = path, environment
        self.samples: dict[MeasurementKey, MeasuredSample] = {}
        self.stale = False
        for line in files.read_text(path).splitlines() if path.exists() else ():
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


@dataclass(slots=True)
class SampleCollector:
    """Receives reports of all ranks; a measurement is done when all have reported it."""

    measurements: Sequence[Measurement]
    ranks: int
    journal: SampleJournal
    on_progress: OnProgress
    before: int  # measurements that were done in an earlier run
    reports: dict[int, dict[int, list[TimeSpan]]] = field(default_factory=dict)  # index of measurement → rank → spans
    began: float = 0.0
    expected_s: float = 0.0  # expected seconds of what was done since `began`

    def receive(self, rank: int, report: Any) -> None:
        index, spans = report
        reports = self.reports.setdefault(index, {})
        reports[rank] = spans
        if len(reports) < self.ranks:
            return
        measurement = self.measurements[index]
        values = sample_values(measurement, [spans for _, spans in sorted(self.reports.pop(index).items())])
        self.journal.append(
            MeasuredSample(measurement.context, measurement.kind, measurement.sizes, measurement.round, values)
        )
        self.report(index, measurement)

    def report(self, index: int, measurement: Measurement) -> None:
        """Reports progress, with the time left: expected seconds of the rest, scaled by actual over expected so far."""
        left = sum(measurement.expected_s for measurement in self.measurements[index + 1 :])
        if not self.began:  # the first report: processes have just started
            self.began = time.monotonic()
        else:
            self.expected_s += measurement.expected_s
            left *= (time.monotonic() - self.began) / max(self.expected_s, 1e-9)
        self.on_progress(self.before + index + 1, self.before + len(self.measurements), measurement.text, left)


def sample_values(measurement: Measurement, reports: Sequence[Sequence[TimeSpan]]) -> tuple[float, ...]:
    """Values of a sample from the spans of all ranks; of collectives the mean over groups, which run independently."""
    by_repeat = zip(*reports, strict=True)
    if measurement.kind in COLLECTIVES:
        size = measurement.sizes[0]
        durations = [
            collective_seconds(of_all[first : first + size])
            for of_all in by_repeat
            for first in range(0, len(of_all), size)
        ]
        return (sum(durations) / (len(reports) // size) / measurement.repeats,)
    repeats = 1 if measurement.kind == "kept" else measurement.repeats
    return tuple(elapsed_seconds(spans, usable_cores()) / repeats for spans in by_repeat)


def run_measurements(collector: SampleCollector, specs: dict[str, Module], dtype: Dtype, kind: DeviceKind) -> None:
    """Runs the collector's measurements on as many processes as it has ranks."""
    from planner.profiling.profile_rank import rank_main

    total = collector.before + len(collector.measurements)
    expected_s = sum(measurement.expected_s for measurement in collector.measurements)
    collector.on_progress(collector.before, total, f"starting {collector.ranks} processes", expected_s)
    launch(rank_main, collector.ranks, collector.measurements, specs, dtype, on_message=collector.receive, kind=kind)
