"""The host's threads in pieces: one ends where its thread acts on something else, or something acts on it.

A piece is one thing to the clock. Its seconds are those between its end and the latest of what it had to wait for: the
piece before it, and, as measured, whatever else it awaits. Gaps between operators are the host's own time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["threads", "launch", "synchronise", "inter-stream", "unseen"]
KINDS: tuple[Kind, ...] = ("threads", "launch", "synchronise", "inter-stream", "unseen")


@dataclass(eq=False, slots=True)
class Piece:
    """Of one thread, up to `end`."""

    thread: int
    end: float
    start: float = 0.0
    seconds: float = 0.0
    number: int = -1
    ops: list[int] = field(default_factory=list)  # awaited operations of the device
    markers: list[tuple[int, int]] = field(default_factory=list)  # streams awaited as they are, and their last op then
    pieces: "list[Piece]" = field(default_factory=list)  # awaited pieces of other threads


class Threads:
    """The pieces of all threads, as they are found, in whatever order."""

    def __init__(self, count: int) -> None:
        self.of: list[list[Piece]] = [[] for _ in range(count)]

    def cut(self, thread: int, time: float) -> Piece:
        """One more piece, which ends at `time`; of those that end together, the one that was cut first is first."""
        piece = Piece(thread, time)
        self.of[thread].append(piece)
        return piece

    def done(self, op_ends: Sequence[float]) -> list[Piece]:
        """All pieces, thread by thread, with their seconds."""
        found: list[Piece] = []
        for pieces in self.of:
            pieces.sort(key=lambda piece: piece.end)
            before = 0.0
            for piece in pieces:
                piece.start = before
                awaited = [op_ends[op] for op in piece.ops]
                awaited += [op_ends[op] for _, op in piece.markers]
                awaited += [other.end for other in piece.pieces]
                piece.seconds = max(0.0, piece.end - max(before, *awaited, before))
                piece.number = len(found)
                before = piece.end
                found.append(piece)
        return found
