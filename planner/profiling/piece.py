"""One thing to measure once, and what came out: plain data between the plan of a profile, its ranks and its fits."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["layer", "ends", "update", "kept", "all_to_all", "all_gather", "reduce_scatter", "p2p"]
Key = tuple[str, str, tuple[int, ...], int]
Span = tuple[float, float]  # begin and end, s, on a clock that all ranks of a machine share

COLLECTIVES: tuple[Kind, ...] = ("all_to_all", "all_gather", "reduce_scatter", "p2p")
PASSES: tuple[Kind, ...] = ("layer", "ends")


@dataclass(frozen=True, slots=True)
class Piece:
    """What every rank does at the same time, between two barriers."""

    context: str  # digest of everything else that the result depends on
    kind: Kind
    sizes: tuple[int, ...]  # tokens of packed documents; or ranks of a group and bytes
    round: int  # a piece is measured once in every round, so that a disturbance meets many pieces a little
    repeats: int = 1  # back to back in one measurement
    expected_s: float = 0.0  # for the time left, and for nothing else

    @property
    def key(self) -> Key:
        return self.context, self.kind, self.sizes, self.round

    @property
    def text(self) -> str:
        """What it is, for a person who waits for it."""
        if self.kind in COLLECTIVES:
            return f"{self.kind} over {self.sizes[0]} ranks"
        names = {"layer": "layers", "ends": "embedding, head and loss", "update": "optimizer", "kept": "activations"}
        return names[self.kind]


@dataclass(frozen=True, slots=True)
class Sample:
    """What a piece came to, per repeat. Seconds: forward and backward, or one number. `kept`: bytes per token of a
    layer and of the ends."""

    context: str
    kind: Kind
    sizes: tuple[int, ...]
    round: int
    values: tuple[float, ...]

    @property
    def key(self) -> Key:
        return self.context, self.kind, self.sizes, self.round


def length(spans: Iterable[Span]) -> float:
    """From when the first rank began to when the last was done: the cores may have served them in turns."""
    begins, ends = zip(*spans, strict=True)
    return float(max(ends) - min(begins))
