"""One thing to measure once, and what came out: plain data between the plan of a profile, its ranks and its fits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Again = Literal["selective", "full"]  # layers that make as much again in backward
Spread = Literal["held", "resharded", "held_ends", "resharded_ends"]  # under FSDP2: gathered once, or in each pass
Kind = Literal["layer", Again, "ends", Spread, "update", "kept", "all_to_all", "all_gather", "reduce_scatter", "p2p"]
Key = tuple[str, str, tuple[int, ...], int]

COLLECTIVES: tuple[Kind, ...] = ("all_to_all", "all_gather", "reduce_scatter", "p2p")
AGAIN: tuple[Again, ...] = ("selective", "full")
SPREAD: tuple[Spread, ...] = ("held", "resharded", "held_ends", "resharded_ends")


@dataclass(frozen=True, slots=True)
class Span:
    """What one rank saw of a piece, in seconds on clocks that all ranks of a machine share. Events of GPUs share none:
    these ranks are taken to end together, at 0.
    """

    begin: float
    end: float
    busy: float | None = None  # of a core, when one thread did all of it and never waited


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
        if self.kind in AGAIN:
            return f"layers, recompute {self.kind}"
        if self.kind in SPREAD:
            return f"under FSDP2, {self.kind.replace('_', ' ')}"
        names = {"layer": "layers", "ends": "embedding, head and loss", "update": "optimizer", "kept": "activations"}
        return names[self.kind]


@dataclass(frozen=True, slots=True)
class Sample:
    """What a piece came to, per repeat: seconds of forward and backward, or of a collective; of `update`, seconds per
    parameter that a rank holds; of `kept`, bytes per token of a layer, of the ends, and of layers as in AGAIN."""

    context: str
    kind: Kind
    sizes: tuple[int, ...]
    round: int
    values: tuple[float, ...]

    @property
    def key(self) -> Key:
        return self.context, self.kind, self.sizes, self.round


def seconds(spans: Sequence[Span], cores: int) -> float:
    """How long a piece takes when its ranks have the machine to themselves.

    Ranks that only compute keep the cores busy between them: their processor time says what the clock would, whatever
    else ran meanwhile. Otherwise from when the first began to when the last was done.
    """
    busy = [span.busy for span in spans if span.busy is not None]
    if busy:
        return max(max(busy), sum(busy) / cores)
    return max(span.end for span in spans) - min(span.begin for span in spans)


def met(spans: Sequence[Span]) -> float:
    """How long a group's collective takes: from when its last rank came, however long others waited for that one."""
    return max(span.end for span in spans) - max(span.begin for span in spans)
