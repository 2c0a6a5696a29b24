"""What pictures are drawn on, and what several of them have in common."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from planner.specs.base import Ranks

COLOURS = ("blue", "cyan", "green", "yellow", "magenta", "red", "bright_blue", "bright_green")
NARROW = 60  # columns: below, labels say less
LONG = 9  # characters: a list of ranks beyond is cut
NOTHING = ("·", "bright_black")

Cell = tuple[str, str]  # symbol, style


@dataclass(frozen=True, slots=True)
class Canvas:
    """What is drawn on: columns, and whether neighbours must differ without colours."""

    width: int
    plain: bool = False

    @property
    def narrow(self) -> bool:
        return self.width < NARROW


def line(cells: Iterable[Cell], before: str = "") -> Text:
    """Cells as one line."""
    drawn = Text(before)
    for symbol, style in cells:
        drawn.append(symbol, style=style)
    return drawn


def labels(sets: Sequence[Ranks], canvas: Canvas) -> list[str]:
    """`rank 3`, `ranks 0-7`, `ranks 0,8,… ×128`, all of the same width; on a narrow canvas the numbers alone."""
    texts = [f"rank{'s' if len(ranks) > 1 else ''} {shortened(ranks)}" for ranks in sets]
    if canvas.narrow:
        texts = [text.partition(" ")[2] for text in texts]
    width = max(map(len, texts), default=0)
    return [f"{text:<{width}} " for text in texts]


def shortened(ranks: Ranks) -> str:
    """Ranges, and how many ranks there are where they take too much room."""
    pieces = str(ranks).split(",")
    kept = 2 if len(",".join(pieces[:2])) <= LONG else 1
    if len(pieces) <= kept or len(str(ranks)) <= LONG:
        return str(ranks)
    return f"{','.join(pieces[:kept])},… ×{len(ranks)}"
