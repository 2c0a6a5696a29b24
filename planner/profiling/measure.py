"""Pieces handed to ranks, their spans put together, every sample kept at once."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.launch.processes import launch
from planner.launch.worker import Kind, cores
from planner.profiling.journal import Journal
from planner.profiling.piece import COLLECTIVES, Piece, Sample, Span, met, seconds
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype

OnProgress = Callable[[int, int, str, float], None]  # pieces done, of, the last one, seconds left


@dataclass(slots=True)
class Collector:
    """Hears every rank; a piece is measured when all have reported it."""

    pieces: Sequence[Piece]
    ranks: int
    journal: Journal
    on_progress: OnProgress
    before: int  # pieces that were measured in an earlier run
    heard: dict[int, dict[int, list[Span]]] = field(default_factory=dict)  # piece → rank → what it saw
    began: float = 0.0
    expected_s: float = 0.0  # of what is done since `began`

    def hear(self, rank: int, report: Any) -> None:
        index, spans = report
        reports = self.heard.setdefault(index, {})
        reports[rank] = spans
        if len(reports) < self.ranks:
            return
        piece = self.pieces[index]
        values = values_of(piece, [spans for _, spans in sorted(self.heard.pop(index).items())])
        self.journal.append(Sample(piece.context, piece.kind, piece.sizes, piece.round, values))
        self.report(index, piece)

    def report(self, index: int, piece: Piece) -> None:
        """The time left: what is expected of the rest, scaled by how the expectations fared so far."""
        left = sum(piece.expected_s for piece in self.pieces[index + 1 :])
        if not self.began:  # processes have started only now
            self.began = time.monotonic()
        else:
            self.expected_s += piece.expected_s
            left *= (time.monotonic() - self.began) / max(self.expected_s, 1e-9)
        self.on_progress(self.before + index + 1, self.before + len(self.pieces), piece.text, left)


def values_of(piece: Piece, reports: Sequence[Sequence[Span]]) -> tuple[float, ...]:
    """Of a sample, from what every rank saw; of collectives in the mean over groups, which do not meet each other."""
    together = zip(*reports, strict=True)
    if piece.kind in COLLECTIVES:
        size = piece.sizes[0]
        lasted = [met(of_all[first : first + size]) for of_all in together for first in range(0, len(of_all), size)]
        return (sum(lasted) / (len(reports) // size) / piece.repeats,)
    shared = 1 if piece.kind == "kept" else piece.repeats
    return tuple(seconds(spans, cores()) / shared for spans in together)


def measure(collector: Collector, specs: dict[str, Module], dtype: Dtype, kind: Kind) -> None:
    """Run the collector's pieces on as many processes as it has ranks."""
    from planner.profiling.rank import rank_main

    total = collector.before + len(collector.pieces)
    expected_s = sum(piece.expected_s for piece in collector.pieces)
    collector.on_progress(collector.before, total, f"starting {collector.ranks} processes", expected_s)
    launch(rank_main, collector.ranks, collector.pieces, specs, dtype, on_message=collector.hear, kind=kind)
