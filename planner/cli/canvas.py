"""The canvas of terminal pictures: its width and colours, lines of cells, and labels of ranks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from planner.specs.base import Ranks

COLOURS = ("blue", "cyan", "green", "yellow", "magenta", "red", "bright_blue", "bright_green")
NARROW = 60  # columns: below this, labels are shorter
LONG = 9  # characters: a longer list of ranks is cut
NOTHING = ("·", "bright_black")

Cell = tuple[str, str]  # symbol, style


@dataclass(frozen=True, slots=True)
class Canvas:
    """Width in columns, and whether neighbours must be told apart without colours (`plain`)."""

    width: int
    plain: bool = False

    @property
    def narrow(self) -> bool:
        return self.width < NARROW


def cell_line(cells: Iterable[Cell], before: str = "") -> Text:
    """Cells as one line, after a label."""
    drawn = Text(before)
    for symbol, style in cells:
        drawn.append(symbol, style=style)
    return drawn


def rank_labels(sets: Sequence[Ranks], canvas: Canvas) -> list[str]:
    """Labels such as `rank 3` or `ranks 0,8,… ×128`, padded to one width; numbers only on a narrow canvas."""
    texts = [f"rank{'s' if len(ranks) > 1 else ''} {short_ranks(ranks)}" for ranks in sets]
    if canvas.narrow:
        texts = [text.partition(" ")[2] for text in texts]
    width = max(map(len, texts), default=0)
    return [f"{text:<{width}} " for text in texts]


def short_ranks(ranks: Ranks) -> str:
    """Ranges of ranks; a long list is cut, and the number of ranks added."""
    ranges = str(ranks).split(",")
    shown = 2 if len(",".join(ranges[:2])) <= LONG else 1
    if len(ranges) <= shown or len(str(ranks)) <= LONG:
        return str(ranks)
    return f"{','.join(ranges[:shown])},… ×{len(ranks)}"
