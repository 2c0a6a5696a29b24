"""The host's threads in pieces: one ends where its thread acts on something else, or something acts on it.

A piece is one thing to the clock. Its seconds are those between its end and the latest of what it had to wait for: the
piece before it, and, as measured, whatever else it awaits. Gaps between operators are the host's own time. A call that
synchronises with nothing that was found is `unseen` time beyond what such calls take when nothing is left to wait for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
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
    unseen: float = 0.0  # more, of a call that waited for nothing that was found
    number: int = -1
    unmatched: bool = False  # such a call
    ops: tuple[int, ...] = ()  # awaited operations of the device
    markers: tuple[tuple[int, int], ...] = ()  # streams awaited as they are, and their last op then
    pieces: "tuple[Piece, ...]" = ()  # awaited pieces of other threads

    @property
    def synchronises(self) -> bool:
        return bool(self.ops or self.markers)


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
            pieces.clear()
        set_apart(found)
        return found


def set_apart(pieces: Sequence[Piece]) -> None:
    """What unmatched calls take beyond the pace of calls that are matched is unseen."""
    unmatched = [piece for piece in pieces if piece.unmatched]
    if not unmatched:
        return
    paces = [piece.seconds for piece in pieces if piece.synchronises]
    pace = median(paces) if paces else 0.0
    for piece in unmatched:
        piece.unseen = max(0.0, piece.seconds - pace)
        piece.seconds -= piece.unseen
