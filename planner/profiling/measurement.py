"""Measurements and their samples: plain data that passes between the grid, the ranks and the fits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

RecomputeKind = Literal["selective", "full"]  # layers with this recompute
FsdpKind = Literal[
    "held", "resharded", "held_ends", "resharded_ends"
]  # under FSDP2: gathered once a step, or in each pass
CollectiveKind = Literal["all_to_all", "all_gather", "reduce_scatter", "p2p"]
MeasurementKind = Literal["layer", RecomputeKind, "frozen", "ends", FsdpKind, "update", "kept", CollectiveKind]
MeasurementKey = tuple[str, str, tuple[int, ...], int]

COLLECTIVES: tuple[MeasurementKind, ...] = ("all_to_all", "all_gather", "reduce_scatter", "p2p")
RECOMPUTE_KINDS: tuple[RecomputeKind, ...] = ("selective", "full")
FSDP_KINDS: tuple[FsdpKind, ...] = ("held", "resharded", "held_ends", "resharded_ends")


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Time span of a measurement on one rank, in seconds on a clock that all ranks of a machine share. CUDA events
    share none: their spans end at 0 on all ranks.
    """

    begin: float
    end: float
    busy: float | None = None  # CPU seconds, when one thread did all the work and never waited


@dataclass(frozen=True, slots=True)
class Measurement:
    """What every rank measures at the same time, between two barriers."""

    context: str  # digest of all else that the result depends on
    kind: MeasurementKind
    sizes: tuple[int, ...]  # tokens of packed documents; or ranks of a group and bytes of a message
    round: int  # each is measured once per round, so that a disturbance affects many a little
    repeats: int = 1  # back to back in one measurement
    expected_s: float = 0.0  # for the estimate of the time left only

    @property
    def key(self) -> MeasurementKey:
        return self.context, self.kind, self.sizes, self.round

    @property
    def text(self) -> str:
        """Description for the progress display."""
        if self.kind in COLLECTIVES:
            return f"{self.kind} over {self.sizes[0]} ranks"
        if self.kind in RECOMPUTE_KINDS:
            return f"layers, recompute {self.kind}"
        if self.kind in FSDP_KINDS:
            return f"under FSDP2, {self.kind.replace('_', ' ')}"
        names = {
            "layer": "layers",
            "frozen": "frozen layers",
            "ends": "embedding, head and loss",
            "update": "optimizer",
            "kept": "activations",
        }
        return names[self.kind]


@dataclass(frozen=True, slots=True)
class MeasuredSample:
    """Result of a measurement, per repeat: seconds of forward and backward, or of a collective; of `update`, seconds
    per parameter of a rank; of `kept`, bytes per token of a layer, of embedding and head, and of recomputing layers.
    """

    context: str
    kind: MeasurementKind
    sizes: tuple[int, ...]
    round: int
    values: tuple[float, ...]

    @property
    def key(self) -> MeasurementKey:
        return self.context, self.kind, self.sizes, self.round


def elapsed_seconds(spans: Sequence[TimeSpan], cores: int) -> float:
    """Seconds that a measurement takes when its ranks have the machine to themselves.

    Ranks that only compute keep the cores busy: their CPU time is not affected by other load. Otherwise it is the time
    from the first start to the last end.
    """
    busy = [span.busy for span in spans if span.busy is not None]
    if busy:
        return max(max(busy), sum(busy) / cores)
    return max(span.end for span in spans) - min(span.begin for span in spans)


def collective_seconds(spans: Sequence[TimeSpan]) -> float:
    """Seconds of a group's collective, from the arrival of its last rank to the last end."""
    return max(span.end for span in spans) - max(span.begin for span in spans)
