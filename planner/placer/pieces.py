"""Pieces of work, the lanes that they are placed on, and where and when each is: plain data, in seconds and bytes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True, slots=True)
class Mode:
    """How a piece may run: on so many lanes of a class, or on just these, with a share of each."""

    seconds: float
    ranks: int | tuple[int, ...] = 1  # lanes: how many, or which
    share: float = 1.0  # of each lane, in (0, 1]
    bytes: float = 0.0  # on each lane, from the start of the piece
    on: str = "compute"  # the class of lanes

    @property
    def width(self) -> int:
        return self.ranks if isinstance(self.ranks, int) else len(self.ranks)

    @property
    def lane_seconds(self) -> float:
        return self.seconds * self.width * self.share


@dataclass(frozen=True, slots=True)
class Piece:
    """What runs once, in one of its modes, without a break."""

    name: str
    modes: tuple[Mode, ...]
    after: Mapping[str, float] = field(default_factory=dict)  # pieces that end before → seconds from then to its start
    freed_by: str | None = None  # the piece that frees its bytes as it ends; None: itself
    near: tuple[str, ...] = ()  # pieces whose lanes it shares where that delays nothing, as it has their parameters
    work: str = ""  # that was divided, if any
    items: int = 0  # of that work


@dataclass(frozen=True, slots=True)
class Taken:
    """What stands already, and is not moved."""

    start: float
    end: float  # seconds; may be infinite
    lanes: tuple[int, ...]
    share: float = 1.0
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Lanes:
    """Equal lanes, numbered from 0: the compute of ranks, directions of links, hosts."""

    count: int
    name: str = "compute"
    per_node: int | None = None  # lanes of a node, which follow each other; None: one node
    bytes: float = inf  # that each holds
    taken: tuple[Taken, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """A piece in its place."""

    piece: Piece
    mode: Mode
    start: float
    end: float
    lanes: tuple[int, ...]


# Seconds of a piece in a mode from a start on, and what has been placed and runs then, on any lanes. What is placed
# later beside it does not change them: dear neighbours are to be placed first.
Pricing = Callable[[Piece, Mode, float, tuple[Placed, ...]], float]


@dataclass(frozen=True, slots=True)
class Placement:
    """Pieces in the order of their starts."""

    placed: tuple[Placed, ...]

    @property
    def seconds(self) -> float:
        """When the last ends."""
        return max((each.end for each in self.placed), default=0.0)
