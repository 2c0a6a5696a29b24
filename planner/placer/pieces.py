"""Pieces of work, the lanes that they are placed on, and where and when each is: plain data, in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Mode:
    """How a piece may run: on so many lanes."""

    seconds: float
    width: int = 1

    @property
    def lane_seconds(self) -> float:
        return self.seconds * self.width


@dataclass(frozen=True, slots=True)
class Piece:
    """What runs once, in one of its modes, without a break."""

    name: str
    modes: tuple[Mode, ...]
    after: Mapping[str, float] = field(default_factory=dict)  # pieces that end before → seconds from then to its start
    near: tuple[str, ...] = ()  # pieces whose lanes it shares where that delays nothing, as it has their parameters
    work: str = ""  # that was divided, if any
    items: int = 0  # of that work


@dataclass(frozen=True, slots=True)
class Lanes:
    """Equal lanes, numbered from 0."""

    count: int
    per_node: int | None = None  # lanes of a node, which follow each other; None: one node


@dataclass(frozen=True, slots=True)
class Placed:
    """A piece in its place."""

    piece: Piece
    mode: Mode
    start: float
    end: float
    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Pieces in the order of their starts."""

    placed: tuple[Placed, ...]

    @property
    def seconds(self) -> float:
        """When the last ends."""
        return max((each.end for each in self.placed), default=0.0)
